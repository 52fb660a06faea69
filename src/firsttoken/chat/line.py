"""Reading what the user types: with editing, history and completion in a terminal, as it is from anything else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from firsttoken.chat.event_stream import whole

_TAKES_A_PATH = "/file "


class ReadLine(Protocol):
    """Raises EOFError at the end of input and KeyboardInterrupt on Ctrl-C."""

    def __call__(self, prompt: str, default: str = "") -> str:
        """Shows a prompt and returns what was entered; `default` is there to be edited."""


def terminal_line(history: Path | None, commands: Sequence[str]) -> ReadLine:
    """The reader for standard input; entered lines are kept in `history`, a file that only this user can read."""
    return TerminalLine(history_file(history), commands) if sys.stdin.isatty() else piped_line


def piped_line(prompt: str, default: str = "") -> str:
    """A line of a pipe or file; no prompt, nobody would see it. Bytes that are not valid text are replaced."""
    raw = sys.stdin.buffer.readline()
    if not raw:
        raise EOFError
    return raw.decode("utf-8", errors="replace").rstrip("\r\n")


class TerminalLine:
    """Enter sends; Alt-Enter, Ctrl-J or a backslash before Enter begins a new line. What is pasted stays together."""

    def __init__(self, history: History, commands: Sequence[str]) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=history,
            multiline=True,
            key_bindings=_keys(),
            completer=CommandCompleter(commands),
            complete_while_typing=True,
            prompt_continuation="  ",
            reserve_space_for_menu=4,
        )

    def __call__(self, prompt: str, default: str = "") -> str:
        return self._session.prompt(ANSI(prompt), default=default)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            if (text := whole(buffer.text)) != buffer.text:
                buffer.text = text
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


class CommandCompleter(Completer):
    """Completes a command's name and the path of a file, and nothing else."""

    def __init__(self, commands: Sequence[str]) -> None:
        self._commands = commands
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text
        if typed.startswith("/") and " " not in typed:
            for command in self._commands:
                if command.startswith(typed):
                    yield Completion(command, start_position=-len(typed))
        elif typed.startswith(_TAKES_A_PATH):
            yield from self._paths.get_completions(Document(typed.removeprefix(_TAKES_A_PATH)), complete_event)


def history_file(path: Path | None) -> History:
    """What is entered is kept there, where only this user can read it; without a path, for this chat alone."""
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError:  # a disk that cannot be written costs the history, not the chat
        return InMemoryHistory()
    return FileHistory(path)
