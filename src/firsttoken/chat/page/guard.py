"""Who may speak to the page: checked before Chainlit sees a request.

On loopback the page logs its user in without a password, so another site's script must not reach it: neither by a name
that it made point here (the Host header tells) nor across origins (the Origin header tells). The headers that go out
let the page load nothing from elsewhere: a picture that a model was talked into cannot carry a chat away.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from firsttoken.chat.loopback import is_loopback
from firsttoken.chat.page.options import Options

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, options: Options) -> None:
        self._app = app
        self._options = options
        self._hosts = {urlsplit(origin).netloc.lower() for origin in options.origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self.refusal(Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await receive()  # the connect event
            await WebSocketClose(code=1008, reason=refusal)(scope, receive, send)
        else:
            await PlainTextResponse(refusal, 403)(scope, receive, send)

    def refusal(self, headers: Headers) -> str | None:
        """Why a request with these headers is not served; None when it is."""
        host = headers.get("host", "").lower()
        name = urlsplit(f"//{host}").hostname or ""
        if self._options.loopback and not is_loopback(name) and host not in self._hosts:
            return f"This page is not served under {name[:200]}; --allow-origin adds an address."
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host and origin not in self._options.origins:
            return "Another site may not speak to this page; --allow-origin adds an address."
        return None


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
