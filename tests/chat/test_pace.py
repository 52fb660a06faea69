"""Showing what arrives at a steady rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from firsttoken.chat.event_stream import Piece
from firsttoken.chat.pace import joined, steady


async def burst(count: int, error: Exception | None = None) -> AsyncGenerator[Piece, None]:
    for _ in range(count):
        yield Piece("x")
        await asyncio.sleep(0)
    if error:
        raise error


async def test_the_first_piece_comes_alone_and_the_rest_joined() -> None:
    shown = [piece async for piece in steady(burst(1000), 30)]
    assert shown[0] == Piece("x")
    assert len(shown) <= 3
    assert "".join(piece.text for piece in shown) == "x" * 1000


async def test_a_piece_is_shown_though_no_other_follows_it() -> None:
    seen = asyncio.Event()

    async def one_at_a_time() -> AsyncGenerator[Piece, None]:
        for _ in range(5):
            yield Piece("x")
            await seen.wait()
            seen.clear()

    count = 0
    async with asyncio.timeout(20):
        async for piece in steady(one_at_a_time(), 0.01):
            assert piece == Piece("x")
            count += 1
            seen.set()
    assert count == 5


async def test_an_error_comes_after_all_that_came_before_it() -> None:
    shown = steady(burst(10, error=ValueError("late")), 30)
    assert (await anext(shown)).text + (await anext(shown)).text == "x" * 10
    with pytest.raises(ValueError, match="late"):
        await anext(shown)


async def test_closing_it_closes_what_it_reads() -> None:
    closed = False

    async def endless() -> AsyncGenerator[Piece, None]:
        nonlocal closed
        try:
            while True:
                yield Piece("x")
                await asyncio.sleep(0.001)
        finally:
            closed = True

    shown = steady(endless())
    assert await anext(shown) == Piece("x")
    await shown.aclose()
    assert closed


def test_thoughts_and_answers_are_not_joined_with_each_other() -> None:
    waiting = [Piece("a", True), Piece("b", True), Piece("c"), Piece("d")]
    assert joined(waiting) == [Piece("ab", True), Piece("cd")]
    assert waiting == []
