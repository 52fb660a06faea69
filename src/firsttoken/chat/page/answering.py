"""One question to its answer on the page: waiting, streaming, stopping, and what is said under it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, NamedTuple

from firsttoken.chat.answer import Answer, figures
from firsttoken.chat.asking import ask, count_partial
from firsttoken.chat.chat_errors import ChatError, Refused, ServerBusy, ServerLoading, WaitingError
from firsttoken.chat.chat_server import ChatServer
from firsttoken.chat.event_stream import Piece
from firsttoken.chat.history import History
from firsttoken.chat.language import Language
from firsttoken.chat.pace import steady
from firsttoken.chat.page import elements, words
from firsttoken.chat.page.live import LiveAnswer, Waiting
from firsttoken.chat.page.models import Models
from firsttoken.chat.page.store import Row
from firsttoken.chat.settings import Model, Settings

_THOUGHT_SHOWN = 600  # characters of a thought's end that are shown while it goes on


class Question(NamedTuple):
    text: str  # with its attachments
    model: str | None  # None: the server's first
    settings: Settings


class Answering:
    """Fills one live answer. `run` ends normally also when it is stopped or fails; then the foot says so."""

    def __init__(
        self, server: ChatServer, models: Models, history: History, live: LiveAnswer, language: Language
    ) -> None:
        self._server = server
        self._models = models
        self._history = history
        self._live = live
        self._language = language
        self._answer = Answer()
        self._dropped = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, question: Question) -> Row:
        """The foot that belongs under the answer; the answer itself is in the live answer's step and in the history."""
        error = ""
        notices: list[str] = []
        model = self._models.pick(question.model)
        try:
            try:
                model = await self._models.wait_for(question.model, self._on_wait)
                await self._stream(model, question)
            except Refused:
                # A server that came back with another model does not know the old one's name.
                if self._answer.text or not await self._models.refresh() or self._models.pick(question.model) == model:
                    raise
                model = await self._models.wait_for(question.model)
                await self._stream(model, question)
        except asyncio.CancelledError:
            notices.append(words.STOPPED.text(self._language))
        except ChatError as failure:
            error = failure.text(self._language)
        if rest := self._answer.text[len(self._live.text) :]:
            await self._live.add(rest)  # what had come and was not yet due to be shown
        if model is not None:
            await count_partial(self._server, model, self._answer)
        return elements.foot(
            self._live.step,
            self._language,
            figures=figures(self._answer, self._language) if self._answer.ttft is not None else "",
            notices=self._notices(question) + notices,
            error=error,
            thought=self._answer.reasoning,
        )

    async def _stream(self, model: Model, question: Question) -> None:
        stream = ask(
            self._server,
            model,
            self._history,
            question.text,
            question.settings,
            self._answer,
            on_wait=self._on_wait,
            on_drop=self._on_drop,
        )
        async with aclosing(steady(stream)) as pieces:
            async for piece in pieces:
                await self._show(piece)

    def _notices(self, question: Question) -> list[str]:
        said = []
        if self._dropped:
            form = words.DROPPED_ONE if self._dropped == 1 else words.DROPPED
            said.append(form.text(self._language, turns=self._dropped))
        if self._answer.finish_reason == "length":
            limit = question.settings.max_tokens
            full = limit is None or (self._answer.completion_tokens or 0) < limit
            form = words.CUT_CONTEXT if full else words.CUT
            said.append(form.text(self._language, tokens=limit))
        return said

    async def _show(self, piece: Piece) -> None:
        if piece.thought:
            tail = self._answer.reasoning[-_THOUGHT_SHOWN:]
            await self._live.wait(Waiting(words.THINKING.text(self._language), thought=tail))
        else:
            await self._live.add(piece.text)

    def _on_drop(self, turns: int) -> None:
        self._dropped = turns

    def _on_wait(self, error: WaitingError, _: float) -> None:
        fraction = None
        match error:
            case ServerLoading():
                form, fraction = words.WAIT_LOADING, error.fraction
            case ServerBusy():
                form = words.WAIT_BUSY
            case _:
                form = words.WAIT_DOWN
        waiting = self._live.wait(Waiting(form.text(self._language), fraction))
        task = asyncio.create_task(waiting)  # the caller goes on to wait, so this runs before it ends
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
