"""`POST /v1/responses`, and what stands in for the stored responses that this server does not keep."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from firsttoken.config import Truncation
from firsttoken.server import turn
from firsttoken.server.answers import ClientGone, answer
from firsttoken.server.choice import TokenEntry
from firsttoken.server.error_handlers import error_response
from firsttoken.server.logprobs import TokenNames, chat_logprobs
from firsttoken.server.parsing import read_object
from firsttoken.server.responses.events import ResponseEvents
from firsttoken.server.responses.translate import as_chat
from firsttoken.server.schemas.responses import ResponsesRequest
from firsttoken.server.service import Service
from firsttoken.server.sse import EventStream
from firsttoken.server.translation import translate
from firsttoken.server.turn import Turn
from firsttoken.server.unsupported import RESPONSES

_MAX_ID = 128  # characters of an id that are said back
_TRUNCATIONS: dict[str, Truncation] = {"disabled": "none", "auto": "middle"}


async def create_response(service: Service, request: Request) -> Response:
    arrival = time.monotonic()
    info = service.info()
    given = await read_object(request)
    asked = await translate(ResponsesRequest, given, RESPONSES, as_chat, strict_fields=service.config.strict_fields)
    body = asked.body
    truncate = service.config.truncate if body.truncation is None else _TRUNCATIONS[body.truncation]
    with asked.translation.told_to_client():
        started = await turn.start(
            service, asked.chat, info, prefix="resp_", arrival=arrival, truncate=truncate, length_must_fit=False
        )
    names = TokenNames(service.tokenizer)

    def logprobs(entries: list[TokenEntry]) -> list[Any]:
        shown: list[Any] = chat_logprobs(entries, names)["content"]
        return shown

    head = _head(body, given.fields, started) | {"truncation": "disabled" if truncate == "none" else "auto"}
    events = ResponseEvents(head, logprobs=logprobs if body.wants_logprobs else None)
    headers = asked.headers | started.headers
    if body.stream:
        return EventStream(started.generation, events, headers)
    if not await started.generation.finish(request.receive):
        return ClientGone()
    (choice,) = started.generation.choices
    events.piece(choice, choice.take())
    events.ending(choice)
    return answer(msgspec.json.encode(events.whole(started.generation.usage)), headers)


def _head(body: ResponsesRequest, given: dict[str, Any], started: Turn) -> dict[str, Any]:
    """What the object of a response holds from the start: mostly the request's fields, said back."""
    sampling = started.generation.runs[0].request.sampling
    tools = [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
        | {"strict": tool.strict}
        for tool in body.tools or ()
    ]
    form = (given.get("text") or {}).get("format") or {"type": "text"}
    return {
        "id": started.identity.response_id,
        "object": "response",
        "created_at": started.identity.created,
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "model": started.identity.model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": False,
        "temperature": sampling.temperature,
        "text": {"format": form, "verbosity": "medium"},
        "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
        "tools": tools,
        "top_logprobs": body.top_logprobs or 0,
        "top_p": sampling.top_p,
        "usage": None,
        "user": body.user,
    }


def no_stored_response(response_id: str) -> Response:
    message = f"Response with id '{response_id[:_MAX_ID]}' not found: this server stores no responses."
    return error_response(404, message, code="not_found")
