"""`POST /v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from firsttoken.errors import InvalidRequest
from firsttoken.server import turn
from firsttoken.server.answers import ClientGone, answer
from firsttoken.server.messages.events import MessageEvents
from firsttoken.server.messages.translate import as_chat
from firsttoken.server.parsing import read_object
from firsttoken.server.request_id import REQUEST_ID
from firsttoken.server.schemas.messages import CountTokensRequest, MessagesRequest, Thinking
from firsttoken.server.service import Service
from firsttoken.server.sse import EventStream
from firsttoken.server.translation import translate
from firsttoken.server.unsupported import COUNT_TOKENS, MESSAGES


async def create_message(service: Service, request: Request) -> Response:
    arrival = time.monotonic()
    info = service.info()
    given = await read_object(request)
    asked = await translate(MessagesRequest, given, MESSAGES, as_chat, strict_fields=service.config.strict_fields)
    _check_thinking(service, asked.body.thinking)
    with asked.translation.told_to_client(), _as_clients_know_it():
        started = await turn.start(service, asked.chat, info, prefix="msg_", arrival=arrival, length_must_fit=False)
    generation = started.generation
    events = MessageEvents(
        started.identity,
        request_id=request.scope[REQUEST_ID].decode(),
        prompt_tokens=generation.usage.prompt_tokens,
        max_tokens=asked.body.max_tokens,
    )
    headers = asked.headers | started.headers
    if asked.body.stream:
        return EventStream(generation, events, headers)
    if not await generation.finish(request.receive):
        return ClientGone()
    (choice,) = generation.choices
    events.piece(choice, choice.take())
    events.ending(choice)
    return answer(msgspec.json.encode(events.whole(generation.usage)), headers)


def _check_thinking(service: Service, thinking: Thinking | None) -> None:
    """A model that thinks does so unless told not to; another one cannot be made to."""
    if thinking is not None and thinking.type != "disabled" and service.dialect.thoughts == "none":
        raise InvalidRequest(
            "Invalid 'thinking': this model does not think before it answers; leave it out.",
            param="thinking",
            code="unsupported_parameter",
        )


async def count_tokens(service: Service, request: Request) -> Response:
    """Of the prompt that the same request to `/v1/messages` would have."""
    info = service.info()
    given = await read_object(request)
    strict = service.config.strict_fields
    asked = await translate(CountTokensRequest, given, COUNT_TOKENS, as_chat, strict_fields=strict)
    _check_thinking(service, asked.body.thinking)
    service.check_model(asked.body.model, info)
    with asked.translation.told_to_client():
        count = await turn.count_tokens(service, asked.chat, info)
    return answer(msgspec.json.encode({"input_tokens": count}), asked.headers)


@contextmanager
def _as_clients_know_it() -> Iterator[None]:
    """Agents shorten a conversation when they read these words."""
    try:
        yield
    except InvalidRequest as error:
        if error.code != "context_length_exceeded":
            raise
        raise InvalidRequest(f"prompt is too long: {error.message}", param=error.param, code=error.code) from None
