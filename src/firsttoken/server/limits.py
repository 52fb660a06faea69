"""What one request may cost before anything of it is looked at: bytes of headers and body, and lists in the body."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firsttoken.server.error_handlers import BodyTooLarge, error_response, response_to

MAX_HEADER_BYTES = 32 * 1024  # all names and values together, and the query string
MAX_MESSAGES = 4096
MAX_PARTS = 1024  # of one message's content
MAX_TOOL_CALLS = 256  # of one message
MAX_TOOLS = 128  # offered to the model
MAX_TOOL_NAME = 128  # characters
MAX_NAME = 512  # characters of any name or id
MAX_STOP_IDS = 128
MAX_LOGIT_BIAS = 1024
MAX_ALLOWED_IDS = 16_384
MAX_BAD_WORDS = 256
MAX_PROMPT_SCORES = 1_000_000  # prompt tokens x log-probabilities of each: one takes some 100 bytes on its way
MAX_PROMPTS = 256  # of one completion request
MAX_CHOICES = 1024  # prompts x n
MAX_TOKENS_COUNTED = 262_144  # by /tokenize, or the context's length where that is more; a token takes 360 bytes then


class HeaderLimit:
    """Answers 431 where headers and query string are too long."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_HEADER_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            size = len(scope["query_string"]) + len(scope["path"])
            size += sum(len(name) + len(value) for name, value in scope["headers"])
            if size > self._max_bytes:
                message = f"The request's headers are larger than the {self._max_bytes} bytes that this server takes."
                await error_response(431, message, code="headers_too_large")(scope, receive, send)
                return
        await self._app(scope, receive, send)


class BodyLimit:
    """Answers 413 from the content length alone where there is one, else as soon as the bytes read are too many.

    A chunked body's excess raises `BodyTooLarge` out of `receive`, in the handler that reads it.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value[:20]) > self._max_bytes:
                await response_to(BodyTooLarge(self._max_bytes))(scope, receive, send)
                return
        seen = 0

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > self._max_bytes:
                    raise BodyTooLarge(self._max_bytes)
            return message

        await self._app(scope, limited, send)
