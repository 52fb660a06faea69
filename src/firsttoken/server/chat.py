"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from firsttoken.errors import InvalidRequest
from firsttoken.server.choice import Choice, TextOptions
from firsttoken.server.generation import Generation, Run
from firsttoken.server.logprobs import TokenNames, chat_logprobs
from firsttoken.server.parsing import Parsed, parse, read_object
from firsttoken.server.prompts import Room
from firsttoken.server.responses import ClientGone, answer, truncation_header
from firsttoken.server.sampling import check_counts, sampling_params
from firsttoken.server.schemas.chat import ChatRequest
from firsttoken.server.service import Service
from firsttoken.server.sse import ChatChunks, EventStream, Identity, usage_object
from firsttoken.server.unsupported import CHAT
from firsttoken.types import GenerateRequest

_RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "continue_final_message", "limit", "self"})


async def chat_completions(service: Service, request: Request) -> Response:
    arrival = time.monotonic()
    info = service.info()
    json_body = await read_object(request)
    if json_body.fields.get("tool_choice") == "none":
        json_body.fields.pop("tools", None)  # nothing may be called, so nothing is offered
    parsed = await parse(ChatRequest, json_body, CHAT, strict_fields=service.config.strict_fields)
    body = parsed.body
    model = service.check_model(body.model, info)
    n = check_counts(body, service.config, logprobs=body.top_logprobs, field="top_logprobs")
    max_tokens = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    sampling = sampling_params(body, info, max_tokens=max_tokens, logprobs=logprobs)
    encoded = await service.prompts.chat(
        [message.for_template() for message in body.messages],
        Room(context=info.max_model_len, wanted=max_tokens, kind="messages", keep=body.truncate_prompt_tokens),
        add_generation_prompt=body.opens_a_turn,
        continue_final_message=bool(body.continue_final_message),
        **template_variables(body.chat_template_kwargs),
    )
    identity = service.identity("chatcmpl", model, info)
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
    headers = parsed.headers | truncation_header(encoded.dropped)
    return await _respond(service, request, parsed, generation, identity, headers)


async def _respond(
    service: Service,
    request: Request,
    parsed: Parsed[ChatRequest],
    generation: Generation,
    identity: Identity,
    headers: dict[str, str],
) -> Response:
    body = parsed.body
    names = TokenNames(service.tokenizer, as_ids=bool(body.return_tokens_as_token_ids))
    format_logprobs = partial(chat_logprobs, names=names) if body.logprobs else None
    if body.stream:
        chunks = ChatChunks(identity, include_usage=body.include_usage, logprobs=format_logprobs)
        return EventStream(generation, chunks, include_usage=body.include_usage, headers=headers)
    if not await generation.finish(request.receive):
        return ClientGone()
    choices: list[dict[str, Any]] = []
    for choice in generation.choices:
        piece = choice.take()
        choices.append(
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": piece.text, "refusal": None},
                "logprobs": format_logprobs(piece.entries) if format_logprobs else None,
                "finish_reason": choice.finish_reason,
            }
        )
    fields = identity.fields("chat.completion")
    return answer(msgspec.json.encode({**fields, "choices": choices, "usage": usage_object(generation.usage)}), headers)


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
