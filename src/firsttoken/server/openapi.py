"""The OpenAPI document as it is sent."""

from __future__ import annotations

import asyncio

import msgspec
from fastapi import FastAPI


class OpenApi:
    """The document's bytes, made once somebody asks."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._making = asyncio.Lock()
        self._json = b""

    async def json(self) -> bytes:
        """Made in a thread: it takes a fifth of a second, in which no token would leave."""
        async with self._making:
            if not self._json:
                self._json = await asyncio.to_thread(self._make)
            return self._json

    def _make(self) -> bytes:
        from firsttoken.server.descriptions import document

        return msgspec.json.encode(document(self._app))
