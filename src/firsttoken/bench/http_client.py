"""A lean streaming HTTP client for measuring: connections are kept, errors are recorded, never raised."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from firsttoken.bench.http_connection import Answer, Clock, Connection, Inbox
from firsttoken.bench.records import STOPPED
from firsttoken.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is: "http://host:port/prefix", with or without a final "/v1"."""

    secure: bool
    host: str
    port: int
    prefix: str  # "" or "/something", without the "/v1"

    @staticmethod
    def parse(url: str) -> Address:
        """Raises ConfigError where it is no http or https URL."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"{url!r} is not a server's URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is not a server's URL: write it like http://127.0.0.1:8000")
        secure = parts.scheme == "https"
        prefix = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
        return Address(secure, parts.hostname, port or (443 if secure else 80), prefix)

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    @property
    def root(self) -> str:
        """The URL without "/v1" and without a final slash."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.prefix}"


class HttpClient:
    """Posts JSON bodies and hands their answers to an `Answer` as they come. One event loop, one host."""

    def __init__(
        self,
        address: Address,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 600.0,
        verify_tls: bool = True,
        clock: Clock = time.monotonic,
    ) -> None:
        """`timeout`: seconds without a byte after which a request counts as failed."""
        self._address = address
        self._timeout = timeout
        self._clock = clock
        self._inbox = Inbox()
        self._idle: list[Connection] = []
        self._tls: ssl.SSLContext | None = None
        if address.secure:
            self._tls = ssl.create_default_context()
            if not verify_tls:
                self._tls.check_hostname = False
                self._tls.verify_mode = ssl.CERT_NONE
        fields = {
            "Host": address.authority,
            "Accept": "text/event-stream, application/json",
            "Content-Type": "application/json",
            **(headers or {}),
        }
        if any(char in value for value in fields.values() for char in "\r\n"):
            raise ConfigError("a header or API key holds a line end: remove it")
        self._head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())

    async def post(self, path: str, body: bytes, answer: Answer) -> None:
        """Sends `body` to `prefix + path` and returns when the answer has ended or failed."""
        request = (
            f"POST {self._address.prefix}{path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        ).encode("latin-1", "replace") + body
        start: float | None = None
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                start = start or self._clock()
                if await self._exchange(connection, request, answer, start):
                    return
            # The server had closed a kept connection before it read the request: it goes out again on a new one.
        start = start or self._clock()
        answer.sent(start)
        try:
            connection = await self._connect()
        except (OSError, TimeoutError) as error:
            answer.failed(self._clock(), f"no connection to {self._address.authority}: {error or 'timed out'}")
            return
        except asyncio.CancelledError:
            answer.failed(self._clock(), STOPPED)
            raise
        if not await self._exchange(connection, request, answer, start):
            answer.failed(self._clock(), "the server closed the connection without an answer")

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        address = self._address
        _, connection = await asyncio.wait_for(
            loop.create_connection(
                lambda: Connection(self._inbox, self._clock), address.host, address.port, ssl=self._tls
            ),
            self._timeout,
        )
        return connection

    async def _exchange(self, connection: Connection, request: bytes, answer: Answer, at: float) -> bool:
        done = connection.exchange(request, answer, at)
        watch = asyncio.create_task(self._give_up(connection))
        try:
            answered = await done
        except asyncio.CancelledError:
            connection.abort(STOPPED)
            raise
        finally:
            watch.cancel()
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.close()
        return answered

    async def _give_up(self, connection: Connection) -> None:
        """Ends an exchange during which nothing came for too long."""
        left = self._timeout
        while left > 0:
            await asyncio.sleep(left)
            left = connection.last_at + self._timeout - self._clock()
        connection.abort(f"not a byte came for {self._timeout:g} s")

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
