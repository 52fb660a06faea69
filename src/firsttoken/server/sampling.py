"""From a request's fields, the model's defaults and OpenAI's to the engine's sampling parameters."""

from __future__ import annotations

from firsttoken.config import ServerConfig
from firsttoken.errors import InvalidRequest
from firsttoken.server.prompts import check_ids
from firsttoken.server.schemas.sampling import CompletionFields, SamplingFields
from firsttoken.types import EngineInfo, SamplingParams

_GREEDY_BELOW = 1e-5  # a temperature this low would only overflow
_OPENAI = {  # OpenAI's defaults, and for fields it has not the value that changes nothing
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
_SEEDS = 2**62  # the engine adds a sequence's index to a seed


def default_sampling_params(info: EngineInfo) -> dict[str, float]:
    """What a request gets for what it leaves out: the model's own values, then OpenAI's."""
    found = {name: info.default_sampling.get(name, value) for name, value in _OPENAI.items()}
    return found | {"top_k": max(0, int(found["top_k"]))}


def sampling_params(
    body: SamplingFields,
    info: EngineInfo,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None = None,
) -> SamplingParams:
    """Stop strings stay out of it: the server finds them. Raises InvalidRequest for ids that the model has not."""
    if body.stop_token_ids:
        check_ids(body.stop_token_ids, info, "stop_token_ids")
    if body.logit_bias:
        check_ids(list(body.logit_bias), info, "logit_bias")
    if max_tokens is not None and (body.min_tokens or 0) > max_tokens:
        raise InvalidRequest(
            f"Invalid 'min_tokens': expected at most the {max_tokens} tokens of the answer, but got {body.min_tokens}.",
            param="min_tokens",
            code="invalid_value",
        )

    defaults = default_sampling_params(info)

    def number(name: str, given: float | None) -> float:
        return defaults[name] if given is None else given

    temperature = number("temperature", body.temperature)
    return SamplingParams(
        temperature=0.0 if temperature < _GREEDY_BELOW else temperature,
        top_k=max(0, int(number("top_k", body.top_k))),
        top_p=number("top_p", body.top_p),
        min_p=number("min_p", body.min_p),
        seed=None if body.seed is None else body.seed % _SEEDS,
        repetition_penalty=number("repetition_penalty", body.repetition_penalty),
        presence_penalty=number("presence_penalty", body.presence_penalty),
        frequency_penalty=number("frequency_penalty", body.frequency_penalty),
        logit_bias=body.logit_bias or {},
        max_tokens=max_tokens,
        min_tokens=body.min_tokens or 0,
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
    )


def check_counts(body: CompletionFields, config: ServerConfig, *, logprobs: int | None, field: str) -> int:
    """The number of choices a prompt. Raises InvalidRequest where it, or the alternatives asked for, are too many."""
    n = body.n or 1
    if n > config.max_n:
        raise _too_large("n", n, config.max_n)
    if logprobs is not None and logprobs > config.max_logprobs:
        raise _too_large(field, logprobs, config.max_logprobs)
    return n


def _too_large(field: str, value: int, limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid '{field}': expected a value <= {limit}, but got {str(value)[:20]}.", param=field, code="invalid_value"
    )
