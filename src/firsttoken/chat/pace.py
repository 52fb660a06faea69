"""A steady rate of display: what arrives faster than the eye is shown together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from firsttoken.chat.event_stream import Piece

INTERVAL = 1 / 20  # seconds between two displays


async def steady(pieces: AsyncIterator[Piece], interval: float = INTERVAL) -> AsyncGenerator[Piece, None]:
    """The first piece at once, then what has come since, joined, at most once in `interval` seconds.

    An error of `pieces` is raised after all that came before it. Closing this closes `pieces`, if it is a generator.
    """
    waiting: list[Piece] = []
    news = asyncio.Event()

    async def read() -> None:
        try:
            async for piece in pieces:
                waiting.append(piece)
                news.set()
        finally:
            news.set()

    reading = asyncio.create_task(read())
    try:
        while True:
            await news.wait()
            news.clear()
            over = reading.done()  # looked at first: what it appended before its end is in `waiting`
            for piece in joined(waiting):
                yield piece
            if over:
                await reading  # raises what it died of
                return
            if not reading.done():
                await asyncio.wait({reading}, timeout=interval)
    finally:
        reading.cancel()
        await asyncio.wait({reading})
        if not reading.cancelled():
            reading.exception()  # seen, or of no interest to somebody who left


def joined(waiting: list[Piece]) -> list[Piece]:
    """Empties the list into as few pieces as there are changes between thought and answer."""
    found: list[Piece] = []
    for piece in waiting:
        if found and found[-1].thought == piece.thought:
            found[-1] = Piece(found[-1].text + piece.text, piece.thought)
        else:
            found.append(piece)
    waiting.clear()
    return found
