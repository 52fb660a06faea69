"""Showing what arrives at a steady rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from firsttoken.chat.event_stream import Piece
from firsttoken.chat.pace import joined, steady


async def burst(count: int, between: float = 0.0, error: Exception | None = None) -> AsyncGenerator[Piece, None]:
    for _ in range(count):
        yield Piece("x")
        await asyncio.sleep(between)
    if error:
        raise error


async def test_the_first_piece_comes_alone_and_the_rest_joined() -> None:
    shown = [piece async for piece in steady(burst(1000), 0.5)]
    assert shown[0] == Piece("x")
    assert len(shown) <= 3
    assert "".join(piece.text for piece in shown) == "x" * 1000


async def test_nothing_waits_longer_than_the_interval() -> None:
    shown = [piece async for piece in steady(burst(20, 0.01), 0.02)]
    assert "".join(piece.text for piece in shown) == "x" * 20
    assert 4 <= len(shown) <= 14


async def test_an_error_comes_after_all_that_came_before_it() -> None:
    shown = steady(burst(10, error=ValueError("late")), 0.5)
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
