"""A chat in a terminal: lines in, streamed answers out, one line of figures under each."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from rich.console import Console

from firsttoken.chat import terminal_words as words
from firsttoken.chat.answer import Answer, figures
from firsttoken.chat.asking import ask, count_partial
from firsttoken.chat.attachments import Attachment, with_attachments
from firsttoken.chat.chat_errors import ChatError, ServerLoading, WaitingError
from firsttoken.chat.chat_server import ChatServer
from firsttoken.chat.history import History
from firsttoken.chat.language import Language, Words
from firsttoken.chat.line import ReadLine
from firsttoken.chat.pace import steady
from firsttoken.chat.saved_chats import SavedChats, title_of
from firsttoken.chat.settings import Model, Settings
from firsttoken.chat.views import CONTROLS, PlainView, View, view_for

_PROMPT = "\n> "


class TerminalChat:
    """One conversation at a time with one server. Errors of one turn are told and the chat goes on.

    Everything asynchronous runs in `runner`, which turns Ctrl-C into a cancellation of what runs, and only of that.
    """

    def __init__(
        self,
        server: ChatServer,
        model: Model,
        *,
        runner: asyncio.Runner,
        console: Console,
        notes: Console | None = None,
        language: Language = "en",
        history: History | None = None,
        settings: Settings | None = None,
        saved: SavedChats | None = None,
        footnote: Callable[[Answer], str | None] = lambda answer: None,
    ) -> None:
        """`notes` gets everything but answers, `footnote` may add a second line of figures, `saved` keeps what is
        said."""
        self.server = server
        self.model = model
        self.history = history or History()
        self.settings = settings or Settings()
        self.saved = saved
        self.title = ""
        self.files: list[Attachment] = []  # go with the next question
        self.failed = False  # whether the last turn ended with an error
        self._path: Path | None = None  # where this conversation is kept
        self._runner = runner
        self._console = console
        self._notes = notes or console
        self._language = language
        self._footnote = footnote

    def say(self, text: Words, /, **values: object) -> str:
        return text.text(self._language, **values)

    def note(self, text: Words | str, /, **values: object) -> None:
        shown = text if isinstance(text, str) else self.say(text, **values)
        shown = shown.translate(CONTROLS)  # names, errors and old answers are others' words
        # A pipe's lines are not broken; a terminal would break them inside words.
        whole = not self._notes.is_terminal
        self._notes.print(shown, style="dim", markup=False, highlight=False, soft_wrap=whole)

    def run(self, read_line: ReadLine, command: Callable[[str], bool | None]) -> None:
        """Talks until the end of input, or until `command`, which gets every line with a /, says False."""
        self.note(words.WELCOME, model=self.model.name, url=self.server.url)
        while True:
            try:
                line = read_line(_PROMPT).strip()
            except EOFError:
                return
            except KeyboardInterrupt:
                self.note(words.LEAVE)
                continue
            try:
                if line.startswith("/"):
                    if command(line) is False:
                        return
                elif line:
                    self.ask(line)
            except ChatError as error:
                self.note(error.text(self._language))
            except KeyboardInterrupt:
                self.note(words.STOPPED)

    def ask(self, line: str) -> None:
        """A turn with what was typed and the files that wait for it."""
        if self.turn(with_attachments(line, self.files)) is not None:
            self.files.clear()

    def turn(self, question: str) -> Answer | None:
        """Asks, shows the answer as it comes and its figures; None when nothing came back.

        What was said before Ctrl-C or a broken connection stays in the conversation.
        """
        answer = Answer()
        view = view_for(self._console)
        try:
            view.begin()
            failure = self._runner.run(self._ask(question, answer, view))
        except KeyboardInterrupt:  # a second one, while the first was being dealt with
            failure = self.say(words.STOPPED)
        finally:
            view.end()
        self.failed = failure is not None
        if answer.text or answer.reasoning:
            self.note(figures(answer, self._language))
            if extra := self._footnote(answer):
                self.note(extra)
        if failure is None and not answer.text:
            failure = self.say(words.EMPTY)
        if failure is not None:
            self.note(failure)
        if answer.text:
            self.keep()
        return answer if answer.text else None

    def keep(self) -> None:
        """Writes the conversation to the disk, where that is wanted."""
        if self.saved is None or not self.history.turns:
            return
        self._path = self._path or self.saved.new_path()
        try:
            self.saved.keep(self._path, self.history, self.model.name, self.title)
        except OSError as error:
            self.note(words.CANNOT_KEEP, reason=error.strerror)
            self.saved = None  # it is told once

    def begin(self, history: History, path: Path | None = None, title: str = "") -> None:
        """Puts another conversation in the place of this one."""
        self.history, self._path, self.title = history, path, title

    def count(self, text: str) -> int | None:
        """Tokens of a text, where the server can tell."""
        return self._runner.run(self.server.count_text(self.model.name, text))

    def models(self) -> list[Model]:
        """What the server has. Raises ChatError."""
        return self._runner.run(self.server.models())

    @property
    def shown_title(self) -> str:
        return self.title or title_of(self.history.turns)

    async def _ask(self, question: str, answer: Answer, view: View) -> str | None:
        """Returns the sentence for what went wrong, if anything did."""
        told: set[type[WaitingError]] = set()

        def on_wait(error: WaitingError, pause: float) -> None:
            """Where nothing can be drawn over, each reason is told once."""
            view.wait(self._why(error, pause))
            if isinstance(view, PlainView) and type(error) not in told:
                told.add(type(error))
                self.note(self._why(error, pause))

        stream = ask(
            self.server,
            self.model,
            self.history,
            question,
            self.settings,
            answer,
            on_wait=on_wait,
            on_drop=lambda turns: self.note(words.DROPPED, turns=turns),
        )
        failure = None
        try:
            async with aclosing(steady(stream)) as pieces:
                async for piece in pieces:
                    view.show(piece)
        except ChatError as error:
            failure = error.text(self._language)
        except asyncio.CancelledError:  # Ctrl-C
            failure = self.say(words.STOPPED)
            task = asyncio.current_task()
            assert task
            task.uncancel()
        await count_partial(self.server, self.model, answer)
        return failure

    def _why(self, error: WaitingError, pause: float) -> str:
        text = error.text(self._language)
        if isinstance(error, ServerLoading):
            return self.say(words.WAITING, error=text)
        return self.say(words.TRYING_AGAIN, error=text, seconds=math.ceil(pause))
