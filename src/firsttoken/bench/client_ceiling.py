"""How many streamed chunks a second this process can take: its client against a server in the same event loop.

The server's own work is in the figure, so the client's ceiling over a network is higher, never lower.
"""

from __future__ import annotations

import asyncio
import time
from typing import cast

from firsttoken.bench.http_client import Address, HttpClient
from firsttoken.bench.records import RequestRecord
from firsttoken.bench.stream_answer import StreamAnswer

STREAMS = 32  # at once, as a decode step of that many sequences would send them
_CHUNKS = 64  # an answer
_HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _framed(data: bytes) -> bytes:
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


def _delta(delta: bytes, finish: bytes = b"null") -> bytes:
    return _framed(
        b'{"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1767225600,'
        b'"model":"Qwen/Qwen3-4B-Instruct-2507","choices":[{"index":0,"delta":' + delta + b',"logprobs":null,'
        b'"finish_reason":' + finish + b"}]}"
    )


_FIRST = _HEADERS + _delta(b'{"role":"assistant","content":""}')
_CHUNK = _delta(b'{"content":" token"}')
_END = (
    _delta(b"{}", b'"length"')
    + _framed(b'{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":%d}}' % _CHUNKS)
    + _framed(b"[DONE]")
    + b"0\r\n\r\n"
)


class _Steps:
    """Sends a chunk to every open stream once a turn of the event loop, as an engine's steps do."""

    def __init__(self) -> None:
        self._open: dict[_Stream, int] = {}

    def add(self, stream: _Stream) -> None:
        if not self._open:
            asyncio.get_running_loop().call_soon(self._step)
        self._open[stream] = _CHUNKS

    def _step(self) -> None:
        for stream, left in list(self._open.items()):
            if stream.closed:
                del self._open[stream]
            elif left:
                stream.write(_CHUNK)
                self._open[stream] = left - 1
            else:
                stream.write(_END)
                del self._open[stream]
        if self._open:
            asyncio.get_running_loop().call_soon(self._step)


class _Stream(asyncio.Protocol):
    """A connection of the server; every packet is taken for a request, which the client's small ones are."""

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps
        self._transport: asyncio.Transport | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True

    def data_received(self, data: bytes) -> None:
        self.write(_FIRST)
        self._steps.add(self)

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)


async def chunks_per_second(seconds: float, streams: int = STREAMS) -> float:
    """Runs `streams` requests at once, again and again for so long, and counts the chunks of complete records."""
    steps = _Steps()
    server = await asyncio.get_running_loop().create_server(lambda: _Stream(steps), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(Address.parse(f"http://127.0.0.1:{port}"))
    chunks = 0
    start = time.monotonic()

    async def user(number: int) -> None:
        nonlocal chunks
        while time.monotonic() < start + seconds:
            record = RequestRecord(id="", scenario="self-test", phase="measured", stream=number)
            await client.post("/v1/chat/completions", b"{}", StreamAnswer(record))
            chunks += len(record.chunks) if record.error is None else 0

    await asyncio.gather(*(user(number) for number in range(streams)))
    elapsed = time.monotonic() - start
    client.close()
    server.close()
    await server.wait_closed()
    return chunks / elapsed
