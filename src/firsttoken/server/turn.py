"""One assistant turn, whichever API asked for it: from a checked chat request to a generation that runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from firsttoken.errors import InvalidRequest
from firsttoken.server.answers import truncation_header
from firsttoken.server.choice import Choice, TextOptions
from firsttoken.server.generation import Generation, Run
from firsttoken.server.prompts import Encoded, Room
from firsttoken.server.sampling import check_counts, sampling_params
from firsttoken.server.schemas.chat import ChatRequest
from firsttoken.server.service import Service
from firsttoken.server.sse import Identity
from firsttoken.types import EngineInfo, GenerateRequest

_RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "continue_final_message", "limit", "self"})


@dataclass(frozen=True, slots=True)
class Turn:
    """What the engine has accepted; every way of answering starts from here."""

    generation: Generation
    identity: Identity
    headers: dict[str, str]


async def start(service: Service, body: ChatRequest, info: EngineInfo, *, prefix: str, arrival: float) -> Turn:
    """Returns once the engine has accepted the request; `prefix` begins the answer's id.

    Raises InvalidRequest, ModelNotFound, QueueFull or Unavailable.
    """
    model = service.check_model(body.model, info)
    n = check_counts(body, service.config, logprobs=body.top_logprobs, field="top_logprobs")
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    sampling = sampling_params(body, info, max_tokens=body.answer_tokens, logprobs=logprobs)
    encoded = await _encode(service, body, info)
    identity = service.identity(prefix, model, info)
    work = GenerateRequest(
        request_id=identity.response_id,
        prompt_token_ids=encoded.ids,
        sampling=sampling,
        n=n,
        priority=body.priority or 0,
        cache_salt=body.cache_salt,
        arrival=arrival,
    )
    options = TextOptions(
        stop=body.stop or (),
        min_tokens=sampling.min_tokens,
        include_stop=bool(body.include_stop_str_in_output),
        skip_special_tokens=body.skip_special_tokens is not False,
    )
    choices = [Choice(i, service.tokenizer, options, wants_logprobs=logprobs is not None) for i in range(n)]
    generation = Generation(service.backend, [Run(request=work, choices=choices)], streams=bool(body.stream))
    await generation.start()
    return Turn(generation, identity, truncation_header(encoded.dropped))


async def _encode(service: Service, body: ChatRequest, info: EngineInfo) -> Encoded:
    room = Room(
        context=info.max_model_len, wanted=body.answer_tokens, kind="messages", keep=body.truncate_prompt_tokens
    )
    return await service.prompts.chat(
        [message.for_template() for message in body.messages],
        room,
        add_generation_prompt=body.opens_a_turn,
        continue_final_message=bool(body.continue_final_message),
        **template_variables(body.chat_template_kwargs),
    )


def template_variables(given: dict[str, Any] | None) -> dict[str, Any]:
    """Raises InvalidRequest for names that are the server's own."""
    taken = sorted(_RESERVED & set(given or ()))
    if taken:
        raise InvalidRequest(
            f"Invalid 'chat_template_kwargs': '{taken[0]}' is not a template's variable to set; use the field itself.",
            param="chat_template_kwargs",
            code="invalid_value",
        )
    return given or {}
