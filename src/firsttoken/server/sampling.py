"""From a request's fields, the model's defaults and OpenAI's to the engine's sampling parameters."""

from __future__ import annotations

from collections.abc import Sequence

from firsttoken.config import ServerConfig
from firsttoken.errors import InvalidRequest
from firsttoken.server.choice import TextOptions
from firsttoken.server.error_handlers import wrong_value
from firsttoken.server.limits import MAX_PROMPT_SCORES
from firsttoken.server.prompts import check_ids
from firsttoken.server.schemas.sampling import CompletionFields, SamplingFields
from firsttoken.stop_strings import StopSet
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import EngineInfo, Grammar, SamplingParams

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
    tokenizer: Tokenizer,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None = None,
    grammar: Grammar | None = None,
) -> SamplingParams:
    """Stop strings stay out of it: the server finds them. Raises InvalidRequest for ids that the model has not."""
    if body.stop_token_ids:
        check_ids(body.stop_token_ids, info, "stop_token_ids")
    if body.logit_bias:
        check_ids(list(body.logit_bias), info, "logit_bias")
    if body.allowed_token_ids:
        check_ids(body.allowed_token_ids, info, "allowed_token_ids")
    if max_tokens is not None and (body.min_tokens or 0) > max_tokens:
        sentence = f"expected at most the {max_tokens} tokens of the answer, but got {body.min_tokens}"
        raise wrong_value("min_tokens", sentence)

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
        allowed_token_ids=tuple(body.allowed_token_ids or ()),
        bad_words=_bad_words(body.bad_words or (), tokenizer),
        max_tokens=max_tokens,
        min_tokens=body.min_tokens or 0,
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        grammar=grammar,
    )


def text_options(body: CompletionFields, *, generates: bool = True) -> TextOptions:
    """How the answer's tokens become text."""
    return TextOptions(
        stop=StopSet(body.stop) if body.stop else None,
        min_tokens=body.min_tokens or 0,
        include_stop=bool(body.include_stop_str_in_output),
        skip_special_tokens=body.skip_special_tokens is not False,
        generates=generates,
        token_ids=bool(body.return_token_ids),
    )


def check_bounds(body: CompletionFields, config: ServerConfig, *, logprobs: int | None, field: str) -> int:
    """The number of choices a prompt. Raises InvalidRequest where something is more than this server gives."""
    n = body.n or 1
    stops = body.stop or ()
    for name, value, limit in (
        ("n", n, config.max_n),
        (field, logprobs or 0, config.max_logprobs),
        ("prompt_logprobs", body.prompt_logprobs or 0, config.max_logprobs),
    ):
        if value > limit:
            raise wrong_value(name, f"expected a value <= {limit}, but got {str(value)[:20]}")
    if len(stops) > config.max_stop:
        raise wrong_value("stop", f"expected at most {config.max_stop} strings, but got {len(stops)}")
    if sum(map(len, stops)) > config.max_stop_length:
        raise wrong_value("stop", f"expected at most {config.max_stop_length} characters in all")
    if body.priority and config.scheduling_policy == "fcfs":
        raise InvalidRequest(
            "'priority' is not supported by this server unless it is 0: requests run in the order of their arrival.",
            param="priority",
            code="unsupported_parameter",
        )
    return n


def check_scores(prompt_tokens: int, each: int | None, field: str) -> None:
    """Raises InvalidRequest where a prompt's log-probabilities would fill the memory."""
    if each is not None and prompt_tokens * (each + 1) > MAX_PROMPT_SCORES:
        most = MAX_PROMPT_SCORES // prompt_tokens - 1
        raise wrong_value(field, f"with {prompt_tokens} tokens of prompt it may be at most {most}")


def _bad_words(words: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each word as it begins a text and as it follows a space, in the tokenizer's own spelling."""
    if not words:
        return ()
    spellings = [spelling for word in words for spelling in (word, f" {word.lstrip()}")]
    encoded = tokenizer.encode_batch(spellings, add_special_tokens=False, parse_special=False)
    return tuple(dict.fromkeys(tuple(ids) for ids in encoded if ids))
