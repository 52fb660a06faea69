"""One HTTP/1.1 connection that notes the time of every byte before anything else is done with it.

While one answer is parsed, packets of others wait in the kernel. So a packet's arrival only notes time and bytes in
the `Inbox`, which parses once every ready socket was read: with 64 streams a token's time is then late by the
reading of 64 sockets, not by their parsing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol, cast

import httptools

Clock = Callable[[], float]


class Answer(Protocol):
    """Where an answer goes; every time is of the connection's clock."""

    def sent(self, at: float) -> None: ...

    def headers(self, at: float, status: int, content_type: str) -> None: ...

    def data(self, at: float, data: bytes) -> None: ...

    def ended(self, at: float) -> None: ...

    def failed(self, at: float, sentence: str) -> None: ...


class Inbox:
    """Received bytes with their times, parsed in order after the sockets were read."""

    def __init__(self) -> None:
        self._items: list[tuple[Connection, float, bytes | None]] = []

    def put(self, connection: Connection, at: float, data: bytes | None) -> None:
        """`data` None: the connection is closed."""
        if not self._items:
            connection.loop.call_soon(self._drain)
        self._items.append((connection, at, data))

    def _drain(self) -> None:
        items, self._items = self._items, []
        for connection, at, data in items:
            connection.parse(at, data)


class Connection(asyncio.Protocol):
    """Carries one exchange at a time; `usable` says whether the next may go over it."""

    def __init__(self, inbox: Inbox, clock: Clock = time.monotonic) -> None:
        self.loop = asyncio.get_running_loop()
        self.last_at = 0.0  # of the last byte
        self.usable = False
        self._inbox = inbox
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: Answer | None = None
        self._done: asyncio.Future[bool] | None = None
        self._at = 0.0  # of the bytes that are being parsed
        self._status = 0
        self._content_type = ""
        self._until_close = True  # the body has neither length nor chunks

    # --- what the client calls ---

    def exchange(self, request: bytes, answer: Answer, at: float) -> asyncio.Future[bool]:
        """Sends a request. The future's result is False where not one byte came back (`answer` was told nothing).

        `at` is the send time: before now where the connection was made for this request.
        """
        assert self._transport is not None
        assert self._answer is None
        self._answer = answer
        self._done = self.loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self.usable = False
        self.last_at = self._clock()
        answer.sent(at)
        self._transport.write(request)
        return self._done

    def abort(self, sentence: str) -> None:
        """Ends the exchange with an error and closes."""
        self._fail(self._clock(), sentence)
        self.close()

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # --- what the event loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._inbox.put(self, self._clock(), data)

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        self._inbox.put(self, self._clock(), None)

    def parse(self, at: float, data: bytes | None) -> None:
        if self._answer is None or self._parser is None:
            return
        self._at = at
        if data is None:
            self._closed()
            return
        self.last_at = at
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.abort(f"the answer is not HTTP: {error}")

    # --- what the parser calls ---

    def on_message_begin(self) -> None:
        self._content_type = ""
        self._until_close = True

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower == b"content-type":
            self._content_type = value.decode("latin-1").lower()
        elif lower in (b"content-length", b"transfer-encoding"):
            self._until_close = False

    def on_headers_complete(self) -> None:
        if self._parser is None or self._answer is None:
            return
        self._status = self._parser.get_status_code()
        if self._status >= 200:
            self._answer.headers(self._at, self._status, self._content_type)

    def on_body(self, body: bytes) -> None:
        if self._answer is not None:
            self._answer.data(self._at, body)

    def on_message_complete(self) -> None:
        if self._status < 200 or self._answer is None or self._parser is None:
            return  # an interim answer, such as 100 Continue
        self.usable = self._parser.should_keep_alive() and not self._until_close
        self._finish(lambda answer: answer.ended(self._at))

    def _closed(self) -> None:
        if self._status == 0:
            self._answer = None
            self._resolve(False)
        elif self._until_close:
            self._finish(lambda answer: answer.ended(self._at))
        else:
            self._fail(self._at, "the server closed the connection in the middle of the answer")

    def _fail(self, at: float, sentence: str) -> None:
        self._finish(lambda answer: answer.failed(at, sentence))

    def _finish(self, tell: Callable[[Answer], None]) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            tell(answer)
            self._resolve(True)

    def _resolve(self, answered: bool) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(answered)
