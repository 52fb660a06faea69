"""One question to its answer: fit the history, ask, and keep what was said."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from firsttoken.chat.answer import Answer
from firsttoken.chat.chat_errors import ContextTooLong
from firsttoken.chat.chat_server import ChatServer, Message, OnWait
from firsttoken.chat.event_stream import Piece
from firsttoken.chat.history import History, fit
from firsttoken.chat.settings import Model, Settings


async def ask(
    server: ChatServer,
    model: Model,
    history: History,
    question: str,
    settings: Settings,
    answer: Answer,
    *,
    on_wait: OnWait | None = None,
    on_drop: Callable[[int], None] = lambda turns: None,
) -> AsyncGenerator[Piece, None]:
    """Yields the answer as it comes, filling `answer`. `on_drop` hears how many of the oldest turns are not sent now.

    The turn is in the history when this ends, also with a partial answer: whoever closes it, or is told of an error,
    keeps what was said. A question without any answer leaves no trace. Close it to stop the generation.
    Raises ChatError.
    """

    async def count(messages: Sequence[Message]) -> int | None:
        return await server.count_tokens(model.name, messages)

    before = history.first
    try:
        if await fit(history, question, model.context, settings.max_tokens, count):
            on_drop(history.first)
        while True:
            stream = server.stream(model.name, history.messages(question), settings, answer, on_wait)
            try:
                async with aclosing(stream):
                    async for piece in stream:
                        yield piece
                return
            except ContextTooLong:
                # The server counts otherwise than we do, or tells no limit: half of what is sent goes, until it fits.
                dropped = history.drop(max(1, (len(history.turns) - history.first) // 2))
                if dropped:
                    on_drop(history.first)
                elif settings.max_tokens is not None:
                    settings = replace(settings, max_tokens=None)  # it wants room for all of that: what is left will do
                else:
                    history.first = before
                    raise
    finally:
        if answer.text:
            history.add(question, answer.text, answer.total_tokens)


async def count_partial(server: ChatServer, model: Model, answer: Answer) -> None:
    """Figures for an answer that was stopped before the server sent its usage: its tokens, counted afterwards."""
    if answer.completion_tokens is not None or not (answer.text or answer.reasoning):
        return
    answer.counted = False
    answer.completion_tokens = await server.count_text(model.name, answer.reasoning + answer.text)
