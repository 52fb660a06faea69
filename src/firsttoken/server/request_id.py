"""`X-Request-Id`: echoed, or made where the client sent none."""

from __future__ import annotations

import re
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SANE = re.compile(rb"[!-~]{1,128}")
REQUEST_ID = "firsttoken.request_id"  # key of the scope, for answers that are made outside of this


class RequestId:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = sent if _SANE.fullmatch(sent) else uuid.uuid4().hex.encode()
        scope[REQUEST_ID] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", request_id)]}
            await send(message)

        await self._app(scope, receive, send_with_id)
