"""Who may speak to the API."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from firsttoken.server.api_keys import ApiKeys
from firsttoken.server.error_handlers import error_response

OPEN_PATHS = frozenset({"/health", "/ready", "/ping", "/version", "/metrics"})


class BearerAuth:
    """Lets a request through that carries one of the keys, as `Authorization: Bearer KEY` or, as Anthropic's clients
    send it, as `x-api-key: KEY`; probes and metrics are open.

    The path is the one of the request line and no other header is looked at, so that a forged `Host` changes nothing.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._allowed(scope):
            await self._app(scope, receive, send)
            return
        given = any(name in (b"authorization", b"x-api-key") for name, _ in scope["headers"])
        if given:
            message = "Incorrect API key provided. Send one of this server's keys as `Authorization: Bearer KEY`."
        else:
            message = "You didn't provide an API key. Send it as `Authorization: Bearer KEY`."
        headers = {"WWW-Authenticate": "Bearer"}
        await error_response(401, message, code="invalid_api_key", headers=headers)(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        keys = [value for name, value in scope["headers"] if name == b"x-api-key"]
        if len(values) > 1 or len(keys) > 1:
            return False
        keys += [key for scheme, _, key in (value.partition(b" ") for value in values) if scheme.lower() == b"bearer"]
        matches = [key.strip() in self._keys for key in keys]
        return any(matches)
