"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from firsttoken.server import turn
from firsttoken.server.answer_parts import Answer
from firsttoken.server.answers import ClientGone, answer
from firsttoken.server.choice import Choice, Piece
from firsttoken.server.logprobs import TokenNames, chat_logprobs, prompt_logprobs_object
from firsttoken.server.parsing import parse, read_object
from firsttoken.server.schemas.chat import ChatRequest
from firsttoken.server.service import Service
from firsttoken.server.sse import ChatChunks, EventStream, usage_object
from firsttoken.server.turn import Turn
from firsttoken.server.unsupported import CHAT


async def chat_completions(service: Service, request: Request) -> Response:
    arrival = time.monotonic()
    info = service.info()
    json_body = await read_object(request)
    parsed = await parse(ChatRequest, json_body, CHAT, strict_fields=service.config.strict_fields)
    started = await turn.start(service, parsed.body, info, prefix="chatcmpl-", arrival=arrival)
    return await _respond(service, request, parsed.body, started, parsed.headers | started.headers)


async def _respond(
    service: Service, request: Request, body: ChatRequest, started: Turn, headers: dict[str, str]
) -> Response:
    generation, identity = started.generation, started.identity
    names = TokenNames(service.tokenizer, as_ids=bool(body.return_tokens_as_token_ids))
    format_logprobs = partial(chat_logprobs, names=names) if body.logprobs else None
    if body.stream:
        chunks = ChatChunks(
            identity,
            include_usage=body.include_usage,
            logprobs=format_logprobs,
            running=(lambda: generation.usage) if body.continuous_usage else None,
            prompt=started.prompt_ids if body.return_token_ids else None,
        )
        return EventStream(generation, chunks, headers)
    if not await generation.finish(request.receive):
        return ClientGone()
    choices: list[dict[str, Any]] = []
    for choice in generation.choices:
        piece = choice.take()
        fields = {
            "index": choice.index,
            "message": _message(choice, piece),
            "logprobs": format_logprobs(piece.entries) if format_logprobs else None,
            "finish_reason": choice.finish_reason,
        }
        choices.append(fields | ({"token_ids": piece.token_ids} if body.return_token_ids else {}))
    whole = {**identity.fields("chat.completion"), "choices": choices, "usage": usage_object(generation.usage)}
    if body.prompt_logprobs is not None:
        scored = generation.runs[0].prompt_logprobs
        whole["prompt_logprobs"] = prompt_logprobs_object(scored, body.prompt_logprobs, TokenNames(service.tokenizer))
    if body.return_token_ids:
        whole["prompt_token_ids"] = started.prompt_ids
    return answer(msgspec.json.encode(whole), headers)


def _message(choice: Choice, piece: Piece) -> dict[str, Any]:
    if choice.parser is None:
        return {"role": "assistant", "content": piece.text, "refusal": None}
    whole = Answer.of(piece.parts)
    nothing_else = not (whole.reasoning or whole.tool_calls)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": whole.text if whole.text or nothing_else else None,
        "refusal": None,
    }
    if whole.reasoning:
        message |= {"reasoning_content": whole.reasoning, "reasoning": whole.reasoning}
    if whole.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in whole.tool_calls
        ]
    return message
