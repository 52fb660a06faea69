"""What one request may cost before anything of it is looked at: bytes of headers and body, and lists in the body."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firsttoken.config import ServerConfig
from firsttoken.errors import InvalidRequest, Unavailable
from firsttoken.server.error_handlers import BodyTooLarge, error_response, response_to

JSON_LIMITS = "firsttoken.json_limits"  # key of the scope
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


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """What a body may hold once it is parsed."""

    max_depth: int
    max_string_length: int | None

    def check(self, value: Any) -> None:
        """Raises InvalidRequest. Goes through the levels one by one: no recursion, and no path is kept."""
        level = [value]
        for _ in range(self.max_depth):
            inner: list[Any] = []
            for node in level:
                members = node.values() if isinstance(node, dict) else node
                inner += [member for member in members if isinstance(member, dict | list)]
                self._check_strings(members)
            if not inner:
                return
            level = inner
        raise InvalidRequest(
            f"The request body has more than {self.max_depth} levels of lists and objects.", code="invalid_json"
        )

    def _check_strings(self, members: Iterable[Any]) -> None:
        limit = self.max_string_length
        if limit is not None and any(isinstance(member, str) and len(member) > limit for member in members):
            raise InvalidRequest(f"A text of the request body has more than {limit} characters.", code="text_too_long")


class HeaderLimit:
    """Answers 431 where headers and query string are too long or too many."""

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._max_bytes = config.max_header_bytes
        self._max_count = config.max_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            size = len(scope["query_string"]) + len(scope["path"])
            size += sum(len(name) + len(value) for name, value in scope["headers"])
            excess = None
            if size > self._max_bytes:
                excess = f"are larger than the {self._max_bytes} bytes"
            elif len(scope["headers"]) > self._max_count:
                excess = f"are more than the {self._max_count}"
            if excess is not None:
                message = f"The request's headers {excess} that this server takes."
                await error_response(431, message, code="headers_too_large")(scope, receive, send)
                return
        await self._app(scope, receive, send)


class BodyLimit:
    """Answers 413 from the content length alone where there is one, else as soon as the bytes read are too many.

    A chunked body's excess raises `BodyTooLarge` out of `receive`, in the handler that reads it, and one that would
    fill the memory together with those of other requests raises `Unavailable`: a body is kept while it is answered.
    What the JSON within may be is left in the scope, for whoever parses it.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._max_bytes = config.max_body_bytes
        self._max_held = -(-config.max_body_memory // config.api_workers)
        self._held = 0  # bytes, of all requests
        self._json = JsonLimits(config.max_json_depth, config.max_string_length)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[JSON_LIMITS] = self._json
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value[:20]) > self._max_bytes:
                await response_to(BodyTooLarge(self._max_bytes))(scope, receive, send)
                return
        seen = 0

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                size = len(message.get("body", b""))
                seen += size
                self._held += size
                if seen > self._max_bytes:
                    raise BodyTooLarge(self._max_bytes)
                if self._held > self._max_held:
                    raise Unavailable("The server holds as much as it may; send the request again soon.", retry_after=1)
            return message

        try:
            await self._app(scope, limited, send)
        finally:
            self._held -= seen
