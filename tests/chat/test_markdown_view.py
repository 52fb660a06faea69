"""Markdown that grows in a terminal: what stays, what is drawn again, and that nothing of the model's text is lost."""

from __future__ import annotations

import io
import os
import pty
import termios
import time

import pytest
from rich.console import Console

from firsttoken.chat.event_stream import Piece
from firsttoken.chat.markdown_blocks import Blocks
from firsttoken.chat.views import MarkdownView, PlainView, quiet_keys, view_for

ANSWER = """# Sorting

Some *text* with <b>tags</b>, `code` and a [link](https://example.com/x).
A second line, 中文 🙂.

1. one
2. two

   still two

```python
def sort(values):

    return sorted(values)
```

| a | b |
|---|---|
| 1 | 你 |

The end.
"""
SHOWN = """Sorting

Some text with <b>tags</b>, code and a link (https://example.com/x).
A second line, 中文 🙂.

 1 one
 2 two
   still two

def sort(values):

    return sorted(values)

 a  b
 ─────
 1  你

The end.
"""


class Screen:
    """A terminal of 80 columns and 10 lines that plays what is written to it. Lines that leave its top are kept."""

    def __init__(self) -> None:
        self.written = io.StringIO()
        self.console = Console(
            file=self.written, width=80, height=10, force_terminal=True, color_system=None, legacy_windows=False
        )

    def text(self) -> str:
        """Down to the cursor. Understands what rich uses: cursor up, erase line, carriage return, line feed."""
        lines, row, column = [""], 0, 0
        text = self.written.getvalue()
        position = 0
        while position < len(text):
            character = text[position]
            position += 1
            if character == "\x1b":
                end = next(i for i in range(position + 1, len(text)) if text[i].isalpha())
                number, command = text[position + 1 : end], text[end]
                position = end + 1
                if command == "A":
                    row -= int(number or 1)
                elif command == "K":
                    lines[row] = ""
            elif character == "\r":
                column = 0
            elif character == "\n":
                row, column = row + 1, 0
                if row == len(lines):
                    lines.append("")
            else:
                lines[row] = lines[row][:column].ljust(column) + character + lines[row][column + 1 :]
                column += 1
        return "\n".join(line.rstrip() for line in lines[: row + 1])


def feed(text: str, size: int) -> Screen:
    screen = Screen()
    view = MarkdownView(screen.console)
    view.begin()
    for start in range(0, len(text), size):
        view.show(Piece(text[start : start + size]))
    view.end()
    return screen


@pytest.mark.parametrize("size", [1, 3, 50, 10_000])
def test_what_stays_on_the_screen_does_not_depend_on_how_it_came(size: int) -> None:
    assert feed(ANSWER, size).text() == SHOWN


def test_a_program_longer_than_the_screen_is_whole_in_the_end() -> None:
    lines = [f"line_{number} = {number}" for number in range(50)]
    shown = feed("```python\n" + "\n".join(lines) + "\n```\n", 20).text()
    assert shown == "\n".join(lines) + "\n"


def test_a_complete_block_stays_in_sight_while_the_next_one_begins() -> None:
    screen = Screen()
    view = MarkdownView(screen.console)
    view.begin()
    view.show(Piece("```\ncode = 1\n```\n\n"))
    view.show(Piece("Then"))
    deadline = time.monotonic() + 20
    while "Then" not in screen.text():  # drawing pauses in proportion to what it took
        assert time.monotonic() < deadline
        time.sleep(0.02)
        view.show(Piece(""))
    assert screen.text().startswith("code = 1\n\nThen")
    view.end()


def test_formulas_stay_as_they_were_written() -> None:
    text = r"With \(a_1 * b_1 * c\), \[ \frac{1}{2} \] and $$x^2 \\ y$$ but \*stars\*."
    assert feed(text, 5).text().strip() == r"With \(a_1 * b_1 * c\), \[ \frac{1}{2} \] and $$x^2 \\ y$$ but *stars*."


def test_control_characters_move_no_cursor() -> None:
    screen = Screen()
    view = MarkdownView(screen.console)
    view.begin()
    view.show(Piece("safe\x1b]0;title\x07 \x9b2Jtext"))
    view.end()
    assert screen.text().strip() == "safe]0;title 2Jtext"
    assert "\x07" not in screen.written.getvalue()


def test_thoughts_stand_above_the_answer() -> None:
    screen = Screen()
    view = MarkdownView(screen.console)
    view.begin()
    view.wait("still loading")
    view.show(Piece("Let me ", thought=True))
    view.show(Piece("see.", thought=True))
    view.show(Piece("Yes."))
    view.end()
    assert screen.text() == "Let me see.\n\nYes.\n"


def test_blocks_are_given_once_they_are_complete() -> None:
    blocks = Blocks()
    blocks.push("one\n\ntwo")
    assert blocks.complete() == []
    assert len(blocks.growing(5)) == 2
    blocks.push("\n")
    assert len(blocks.complete()) == 1
    assert len(blocks.growing(5)) == 1
    assert len(blocks.finish()) == 1
    assert blocks.finish() == []


def test_only_a_real_terminal_gets_markdown() -> None:
    assert isinstance(view_for(Console(file=io.StringIO())), PlainView)
    dumb = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(view_for(dumb), PlainView)


def test_keys_are_not_echoed_while_an_answer_comes_and_are_again_after_it() -> None:
    terminal, inside = pty.openpty()

    def echoes() -> bool:
        return bool(termios.tcgetattr(inside)[3] & termios.ECHO)

    with quiet_keys(inside):
        assert not echoes()
    assert echoes()
    os.close(inside)
    os.close(terminal)
    reader, writer = os.pipe()
    with quiet_keys(reader):
        pass  # no terminal: nothing to do
    os.close(reader)
    os.close(writer)
