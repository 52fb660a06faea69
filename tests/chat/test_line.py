"""Typing in a terminal: what sends, what begins a new line, what is offered and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from firsttoken.chat.line import CommandCompleter, TerminalLine, history_file

ENTER, ALT_ENTER, UP, CTRL_C, CTRL_D, CTRL_J = "\r", "\x1b\r", "\x1b[A", "\x03", "\x04", "\x0a"


@contextmanager
def keyboard() -> Iterator[PipeInput]:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield keys


def typed(*keys: str, default: str = "", history: Path | None = None) -> str:
    with keyboard() as board:
        board.send_bytes("".join(keys).encode(errors="surrogateescape"))
        return TerminalLine(history_file(history), ["/help", "/history", "/quit"])("> ", default)


@pytest.mark.parametrize(
    ("keys", "entered"),
    [
        (("one", ENTER), "one"),
        (("one", ALT_ENTER, "two", ENTER), "one\ntwo"),
        (("one", CTRL_J, "two", ENTER), "one\ntwo"),
        (("one\\", ENTER, "two", ENTER), "one\ntwo"),
        (("\x1b[200~a\r\nb\nc\x1b[201~", ENTER), "a\nb\nc"),  # pasted
        (("你好🙂", ENTER), "你好🙂"),
    ],
)
def test_enter_sends_and_other_ways_begin_a_new_line(keys: tuple[str, ...], entered: str) -> None:
    assert typed(*keys) == entered


def test_bytes_that_are_no_text_are_replaced_before_they_are_kept_or_sent(tmp_path: Path) -> None:
    assert typed("half \udc80", ENTER, history=tmp_path / "typed") == "half \N{REPLACEMENT CHARACTER}"


def test_what_is_there_to_be_edited_can_be_edited() -> None:
    assert typed("!", ENTER, default="old question") == "old question!"


@pytest.mark.parametrize(("begun", "whole"), [("/qu", "/quit"), ("/file {folder}/no", "/file {folder}/notes.txt")])
def test_tab_completes_commands_and_paths(tmp_path: Path, begun: str, whole: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    begun, whole = (text.format(folder=tmp_path) for text in (begun, whole))
    completer = CommandCompleter(["/help", "/quit", "/file"])
    [found] = completer.get_completions(Document(begun), CompleteEvent(completion_requested=True))
    assert begun[: len(begun) + found.start_position] + found.text == whole


def test_ctrl_c_and_ctrl_d_are_told_apart() -> None:
    with pytest.raises(KeyboardInterrupt):
        typed("half a question", CTRL_C)
    with pytest.raises(EOFError):
        typed(CTRL_D)


def test_what_was_entered_comes_back_in_the_next_chat_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "typed"
    for keys in (("first", ENTER), (UP, "!", ENTER)):
        with keyboard() as board:
            board.send_text("".join(keys))
            entered = TerminalLine(history_file(path), [])("> ")
    assert entered == "first!"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_disk_that_cannot_be_written_costs_only_the_history(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(history_file(tmp_path / "file" / "typed"), InMemoryHistory)
    assert isinstance(history_file(None), InMemoryHistory)
