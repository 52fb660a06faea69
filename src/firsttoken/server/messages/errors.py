"""Errors in Anthropic's form, whatever part of the server they come from."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firsttoken.server.error_handlers import FAILED

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_PREFIX = "/v1/messages"


def error_object(status: int, message: str, request_id: str | None = None) -> dict[str, Any]:
    """{"type": "error", "error": {"type", "message"}, "request_id"}."""
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def _sentence(body: bytes) -> str:
    """What an answer says that is no success."""
    try:
        return str(msgspec.json.decode(body)["error"]["message"])
    except (msgspec.DecodeError, LookupError, TypeError):
        return body.decode(errors="replace")


class MessagesErrors:
    """Turns the error objects of OpenAI's API into those of Anthropic's on its routes; and names each answer's id as
    Anthropic's clients read it, in `request-id`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (scope["path"] == _PREFIX or scope["path"].startswith(_PREFIX + "/")):
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            await self._app(scope, receive, answer.send)
        except Exception:
            await answer.fail()
            raise  # the server's log tells of it


class _Answer:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._request_id: str | None = None
        self._held: Message | None = None  # the start of an error, until its body is there
        self._body = b""
        self._started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            sent_id = next((value for name, value in message["headers"] if name == b"x-request-id"), None)
            if sent_id is not None:
                self._request_id = sent_id.decode("latin-1")
                message = {**message, "headers": [*message["headers"], (b"request-id", sent_id)]}
            if message["status"] >= 400:
                self._held = message
                return
        elif self._held is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._send_error(self._held, _sentence(self._body))
            return
        await self._send(message)

    async def fail(self) -> None:
        """An error that nobody turned into an answer."""
        if not self._started:
            start = {"type": "http.response.start", "status": 500, "headers": []}
            await self._send_error(start, FAILED)

    async def _send_error(self, start: Message, message: str) -> None:
        body = msgspec.json.encode(error_object(start["status"], message, self._request_id))
        told = (b"content-length", b"content-type")
        headers = [(name, value) for name, value in start["headers"] if name not in told]
        headers += zip(told, (str(len(body)).encode(), b"application/json"), strict=True)
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
