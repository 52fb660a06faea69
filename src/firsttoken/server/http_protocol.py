"""uvicorn's HTTP protocol with what a server that strangers speak to needs besides: bounds, and an end for each client.

Bounded are the connections, the bytes that are no body (head, trailers, chunk extensions), the time that a request may
take to arrive and the time that its sender may take to read the answer; uvicorn and httptools keep and wait for
whatever comes.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import httptools
import msgspec
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from firsttoken.config import ServerConfig
from firsttoken.server.error_handlers import error_object

_PROGRESS = 48 * 1024  # bytes that a client must take in `send_seconds`: asyncio's buffer between its two marks
_TICK = 30.0  # seconds between looks at the clock, at most


def _refusal(status: HTTPStatus, message: str, code: str | None = None, more: str = "") -> bytes:
    body = msgspec.json.encode(error_object(status, message, code=code))
    head = (
        f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: application/json\r\n"
        f"connection: close\r\n{more}content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


_MALFORMED = _refusal(HTTPStatus.BAD_REQUEST, "The request is not valid HTTP/1.1.")
_TOO_LATE = _refusal(HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time.", "request_timeout")
_TOO_LARGE = _refusal(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's headers are too large.", "headers_too_large"
)
_TOO_MANY = _refusal(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "The server has as many connections as it takes; send the request again in a moment.",
    "too_many_connections",
    "retry-after: 1\r\n",
)


def protocol_for(config: ServerConfig) -> type[BoundedHttpProtocol]:
    """The protocol with a worker's share of the limits."""
    waits = (config.header_timeout, config.request_timeout, config.send_timeout)

    class Protocol(BoundedHttpProtocol):
        max_connections = -(-config.max_connections // config.api_workers)
        max_head_bytes = 2 * config.max_header_bytes  # those that are read and too long are told so by the application
        head_seconds, request_seconds, send_seconds = waits
        tick_seconds = min(_TICK, *(wait / 2 for wait in waits))

    return Protocol


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection. Whatever cannot be read is answered in OpenAI's form, and the connection closed."""

    max_connections = 8192
    max_head_bytes = 64 * 1024
    head_seconds = 60.0  # for a request's head, and for the first one to begin at all
    request_seconds = 300.0  # for all of a request
    send_seconds = 300.0  # for the client to take some of what waits for it
    tick_seconds = _TICK  # between looks at the clock: cheaper than a timer a request

    _advanced = False  # a head, a piece of body or a request was completed by the bytes last read
    _unused_bytes = 0  # since then
    _in_head = True
    _began: float | None = None  # when the request now arriving did; None while none is
    _declined = False  # the head last read offers another protocol
    _answering: RequestResponseCycle | None = None
    _ticker: asyncio.TimerHandle | None = None
    _one_too_many = False
    _unread_since: float | None = None  # when what waits was `_unread` bytes; None while nothing has to go
    _unread = 0

    @property
    def owes_an_answer(self) -> bool:
        """Whether a request has come whole and its answer has not gone whole."""
        cycle = self._answering
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    # --- the connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._began = self.loop.time()
        self._one_too_many = len(self.connections) > self.max_connections
        if len(self.connections) > 2 * self.max_connections:
            transport.abort()
        self._ticker = self.loop.call_later(self.tick_seconds, self._tick)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        # uvicorn tells the newest request alone, which is another one where the client sends several ahead.
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._advanced = False
        if self._one_too_many:
            self._refuse(_TOO_MANY)
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._declined:
                self._go_on_in_http(data[offer.args[0] :])
            return
        except httptools.HttpParserError:
            self._refuse(_MALFORMED)
            return
        self._unused_bytes = 0 if self._advanced else self._unused_bytes + len(data)
        if self._unused_bytes > self.max_head_bytes:
            self._refuse(_TOO_LARGE)

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def shutdown(self) -> None:
        """The server's end: a request that has not come whole is not waited for."""
        if self.owes_an_answer:
            super().shutdown()
        else:
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    # --- the parser's callbacks ---

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._began = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers count for nothing: what was decided by the head stands
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._advanced = True
        self._declined = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._declined:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._declined:
            return
        self._advanced = True
        self._in_head = True  # of the next one
        self._began = None
        super().on_message_complete()

    # --- inside ---

    def _go_on_in_http(self, rest: bytes) -> None:
        """Reads a request again without its offer of another protocol, as a server that has none may.

        httptools takes what follows an offer for the other protocol, so that the body would be lost; the JDK's client
        offers HTTP/2 with every first request.
        """
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        self._declined = False
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _refuse(self, answer: bytes) -> None:
        if self.transport.is_closing():
            return
        cycle = self._answering
        if cycle is None or (self._in_head and cycle.response_complete) or self._awaits_body(cycle):
            self.transport.write(answer)  # else it would be taken for a part of another answer
        self.transport.close()

    def _awaits_body(self, cycle: RequestResponseCycle) -> bool:
        return cycle.more_body and not cycle.response_started

    def _tick(self) -> None:
        now = self.loop.time()
        if self._reads_too_slowly(now):
            self.transport.abort()
            return
        self._ticker = self.loop.call_later(self.tick_seconds, self._tick)
        if self.owes_an_answer:
            self._began = None if self._began is None else now  # what is sent ahead of an answer is not read meanwhile
        elif self._began is not None:
            limit = self.head_seconds if self._in_head else self.request_seconds
            if now - self._began >= limit:
                self._end_wait()
        elif self.timeout_keep_alive_task is None:
            self._began = now  # blank lines have ended uvicorn's own wait for the next request

    def _reads_too_slowly(self, now: float) -> bool:
        """Whether the client has left what waits for it where more cannot be sent, or none will come."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting or (self.owes_an_answer and not self.flow.write_paused):
            self._unread_since = None
        elif self._unread_since is None or waiting <= self._unread - _PROGRESS:
            self._unread_since, self._unread = now, waiting
        return self._unread_since is not None and now - self._unread_since >= self.send_seconds

    def _end_wait(self) -> None:
        if self._in_head and not self._unused_bytes:
            self.transport.close()  # nothing was asked
        else:
            self._refuse(_TOO_LATE)
