"""What web pages of others may make a visitor's browser do to this server: nothing, unless they were named.

A page can send requests to any address that the browser reaches, a server on the visitor's own machine too. It may
point a name of its own at that address (DNS rebinding) to pass for the same origin, or send a form, which asks nobody.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from firsttoken.config import ServerConfig
from firsttoken.server.error_handlers import error_response

_FORMS = (b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain")
_READING = frozenset({"GET", "HEAD"})
_LOCAL_ENDS = (".localhost", ".local", ".internal")  # nobody can register a name under these


class BrowserGuard:
    """Answers 403 for a `Host` that is not ours and an `Origin` that was not named, 415 for what a form can send."""

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        keyless = not (config.api_keys or config.api_key_file)
        self._hosts = _Names((*config.allowed_hosts, config.host))
        self._checks_host = bool(config.allowed_hosts) or (keyless and _is_loopback(config.host))
        self._origins = frozenset(config.allowed_origins)
        # With a key a page would need the key, and the browser's leave to send it.
        self._checks_origin = keyless and "*" not in self._origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        status, message, code = refusal
        await error_response(status, message, code=code)(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if self._checks_host and not self._hosts.include(host):
            return 403, "This server does not go by that host name; --allowed-hosts adds names.", "host_not_allowed"
        if scope["method"] in _READING:
            return None
        origin = headers.get(b"origin", b"").decode("latin-1")
        if self._checks_origin and origin and origin not in self._origins and origin.partition("://")[2] != host:
            message = "Web pages of that origin may not use this server; --allowed-origins adds some."
            return 403, message, "origin_not_allowed"
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind in _FORMS:
            return (
                415,
                "The request's body must be JSON; send `Content-Type: application/json`.",
                "unsupported_media_type",
            )
        return None


class _Names:
    """Host names that are ours: addresses and names that only this network knows, and those that were given."""

    def __init__(self, given: Iterable[str]) -> None:
        names = [name.lower().rstrip(".") for name in given]
        self._exact = frozenset(names)
        self._ends = tuple(name[1:] for name in names if name.startswith("*."))

    def include(self, host: str) -> bool:
        """Of a `Host` header. None at all is no browser's."""
        name = _without_port(host).lower().rstrip(".")
        if "." not in name or "*" in self._exact or name in self._exact:
            return True
        return name.endswith((*self._ends, *_LOCAL_ENDS)) or _is_address(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
