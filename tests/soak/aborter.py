"""Clients that connect, ask for something, and leave at a moment nobody chose: politely, with a reset, or half said."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from random import Random
from urllib.parse import urlsplit

from tests.soak.random_bodies import CHAT, COMPLETIONS, RandomBodies

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset and drops what is unread
_LATEST = 0.04  # seconds


class Aborter:
    def __init__(self, url: str, seed: int, *, token_ids: int, in_flight: int = 24) -> None:
        address = urlsplit(url)
        self._address = (address.hostname, address.port)
        self._random = Random(seed)
        self._bodies = RandomBodies(self._random, token_ids)
        self._in_flight = in_flight

    def run(self, count: int) -> None:
        """Returns once every client is gone; what the server still does then is its own affair."""
        asyncio.run(self._run(count))

    async def _run(self, count: int) -> None:
        left = iter(range(count))

        async def clients() -> None:
            for _ in left:
                await self._leave_early()

        await asyncio.gather(*(clients() for _ in range(self._in_flight)))

    async def _leave_early(self) -> None:
        r = self._random
        data = self._request()
        cut = r.choice([len(data), len(data), len(data), r.randrange(len(data)), 0])
        loop = asyncio.get_running_loop()
        with socket.socket() as connection:
            connection.setblocking(False)
            await loop.sock_connect(connection, self._address)
            await loop.sock_sendall(connection, data[:cut])
            await asyncio.sleep(r.choice([0, r.random() * _LATEST, r.random() * 5 * _LATEST]))
            match r.randrange(3):
                case 0:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                case 1:
                    try:
                        connection.shutdown(socket.SHUT_WR)
                        connection.recv(100)
                    except OSError:  # nothing to read yet, or the server was faster
                        pass

    def _request(self) -> bytes:
        path = self._random.choice((CHAT, COMPLETIONS))
        body = self._bodies.body(path)
        body |= {"max_tokens": 400, "ignore_eos": True, "min_tokens": 100, "stream": self._random.random() < 0.7}
        body.pop("max_completion_tokens", None)
        body.pop("stream_options", None)
        content = json.dumps(body).encode()
        return b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (path.encode(), len(content), content)
