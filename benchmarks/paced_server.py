"""A stand-in for a fast server: answers any completion with one token every few milliseconds, after a first pause."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class PacedServer:
    """`ttft` and `tpot` in seconds, from the request's last byte, kept however late a single sleep wakes."""

    def __init__(self, ttft: float, tpot: float) -> None:
        self._ttft = ttft
        self._tpot = tpot

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length:")[2].split("\r\n")[0] or 0)
                body = await reader.readexactly(length)
                await (self._answer(json.loads(body), writer) if length else self._models(writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left
        finally:
            writer.close()

    async def _models(self, writer: asyncio.StreamWriter) -> None:
        body = json.dumps({"object": "list", "data": [{"id": "paced", "object": "model"}]}).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        await writer.drain()

    async def _answer(self, body: dict[str, object], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        tokens = int(str(body["max_tokens"]))
        writer.write(_HEAD)
        for place in range(tokens):
            await asyncio.sleep(max(0.0, start + self._ttft + place * self._tpot - loop.time()))
            writer.write(_chunk({"choices": [{"index": 0, "text": " word", "finish_reason": None}]}))
        usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
        writer.write(_chunk({"choices": [], "usage": usage}) + _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        await writer.drain()


def _chunk(event: dict[str, object]) -> bytes:
    return _framed(b"data: " + json.dumps(event).encode() + b"\n\n")


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def run(options: argparse.Namespace) -> None:
    paced = PacedServer(options.ttft / 1e3, options.tpot / 1e3)
    async with await asyncio.start_server(paced.serve, "127.0.0.1", options.port) as server:
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ttft", type=float, default=5.6, help="ms")
    parser.add_argument("--tpot", type=float, default=2.2, help="ms")
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
