"""The listening socket of a server, opened before anything slow so that a taken port is told at once."""

from __future__ import annotations

import errno
import os
import socket

from firsttoken.errors import ConfigError

_BACKLOG = 2048


def listen(host: str, port: int, flag: str = "--port") -> socket.socket:
    """A listening TCP socket; port 0 lets the system choose. Raises ConfigError with what to do instead, by `flag`."""
    family, address = _resolve(host, port)
    try:
        return _bind(family, address)
    except OSError as error:
        raise ConfigError(_explain(error, host, port, family, flag)) from None


def free_port_from(host: str, port: int) -> int | None:
    """The first one from `port` on that nobody listens on; None where a hundred are taken. Raises ConfigError."""
    family, _ = _resolve(host, port)
    return _next_free(family, host, port)


def url_of(listener: socket.socket, host: str) -> str:
    """Where a client on this machine reaches the server."""
    port = listener.getsockname()[1]
    if host in ("0.0.0.0", "", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _resolve(host: str, port: int) -> tuple[int, tuple[object, ...]]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError:
        raise ConfigError(f"The host {host!r} is not known; use 127.0.0.1, or 0.0.0.0 for every interface.") from None
    return family, address


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family)
    try:
        # A port in TIME_WAIT counts as free; one that somebody listens on does not.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _explain(error: OSError, host: str, port: int, family: int, flag: str) -> str:
    if error.errno == errno.EADDRINUSE:
        free = _next_free(family, host, port + 1)
        hint = f"add {flag} {free}, which is free." if free else f"choose another with {flag}."
        return f"Port {port} on {host} is taken; {hint}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"This machine has no address {host}; use 127.0.0.1, or 0.0.0.0 for every interface."
    if error.errno == errno.EACCES:
        return f"Port {port} needs more rights than this user has; choose one from 1024 up with {flag}."
    return f"Cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}."


def _next_free(family: int, host: str, port: int) -> int | None:
    for candidate in range(port, min(port + 100, 65536)):
        try:
            _bind(family, (host, candidate)).close()
        except OSError:
            continue
        return candidate
    return None
