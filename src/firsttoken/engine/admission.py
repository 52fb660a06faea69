"""What a request must satisfy before the engine takes it."""

from __future__ import annotations

from collections.abc import Iterable

from firsttoken.errors import InvalidRequest
from firsttoken.types import EngineInfo, GenerateRequest


def check_request(request: GenerateRequest, info: EngineInfo) -> None:
    """Raises InvalidRequest, naming the field, when the request could not run on this engine."""
    sampling = request.sampling
    prompt = request.prompt_token_ids
    if not prompt:
        raise InvalidRequest("The prompt is empty; send at least one token.", param="prompt")
    if request.n < 1:
        raise InvalidRequest("n must be at least 1.", param="n")
    if sampling.max_tokens is not None and sampling.max_tokens < 0:
        raise InvalidRequest("max_tokens must not be negative.", param="max_tokens")
    _check_length(len(prompt), sampling.max_tokens, info)
    _check_ids((min(prompt), max(prompt)), info, "prompt")
    _check_ids(sampling.stop_token_ids, info, "stop_token_ids")
    _check_ids(sampling.logit_bias, info, "logit_bias")
    _check_ids(sampling.allowed_token_ids, info, "allowed_token_ids")
    for word in sampling.bad_words:
        _check_ids(word, info, "bad_words")
    if sampling.grammar is not None:
        for field in ("allowed_token_ids", "bad_words"):  # a grammar may need just what these forbid
            if getattr(sampling, field):
                raise InvalidRequest(
                    f"'{field}' cannot be combined with a form that the answer must have; leave one of them out.",
                    param=field,
                )


def max_total_tokens(request: GenerateRequest, info: EngineInfo) -> int:
    """Tokens, prompt included, that one sequence of the request may have: as asked, cut to context and KV pool."""
    longest = min(info.max_model_len, info.num_blocks * info.block_size)
    if request.sampling.max_tokens is None:
        return longest
    return min(len(request.prompt_token_ids) + request.sampling.max_tokens, longest)


def _check_length(num_prompt_tokens: int, max_tokens: int | None, info: EngineInfo) -> None:
    needed = num_prompt_tokens + (max_tokens != 0)  # a prompt that is only scored needs no room for an answer
    if needed > info.max_model_len:
        no_room = ", which leaves no room for an answer" if num_prompt_tokens == info.max_model_len else ""
        raise InvalidRequest(
            f"This model's maximum context length is {info.max_model_len} tokens. However, your messages resulted in "
            f"{num_prompt_tokens} tokens{no_room}. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )
    capacity = info.num_blocks * info.block_size
    if needed > capacity:
        raise InvalidRequest(
            f"The prompt has {num_prompt_tokens} tokens, but the server's KV cache holds {capacity} tokens in all. "
            "Please shorten the prompt, or give the server more KV cache memory.",
            param="messages",
            code="context_length_exceeded",
        )


def _check_ids(ids: Iterable[int], info: EngineInfo, param: str) -> None:
    for token_id in ids:
        if not 0 <= token_id < info.token_id_limit:
            raise InvalidRequest(
                f"Token id {token_id} in {param} is out of range: this model has ids 0 to {info.token_id_limit - 1}.",
                param=param,
            )
