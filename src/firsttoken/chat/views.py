"""How an answer appears while it comes: Markdown that grows in a terminal, plain text anywhere else."""

from __future__ import annotations

import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from firsttoken.chat.event_stream import Piece
from firsttoken.chat.markdown_blocks import Blocks

CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""What takes out of a text, by `translate`, all that would do more than be seen."""
_BUSY = 0.2  # drawing takes about this share of the time at most: the model may run on the same processor


class View(Protocol):
    """One answer on the screen."""

    def begin(self) -> None: ...

    def wait(self, text: str) -> None:
        """Why there is no answer yet."""

    def show(self, piece: Piece) -> None: ...

    def end(self) -> None:
        """Everything that was shown stays on the screen. To be called whatever happened."""


def view_for(console: Console) -> View:
    return MarkdownView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView(console)


class PlainView:
    """The text as it is, but for control characters: the model must not move the cursor or set the window's title."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = False

    def begin(self) -> None:
        """Nothing comes before the text."""

    def wait(self, text: str) -> None:
        """It cannot be taken back here."""

    def show(self, piece: Piece) -> None:
        if not piece.thought:
            self._begun = True
            self._console.file.write(piece.text.translate(CONTROLS))
            self._console.file.flush()

    def end(self) -> None:
        if self._begun:
            self._console.print()


class MarkdownView:
    """Complete blocks are printed once and for all; the one that grows is drawn again below them, as far as it fits.

    A terminal can redraw only what is on its screen, so nothing that is higher is ever drawn twice.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._blocks = Blocks()
        self._thought = ""
        self._printed = False
        self._next = 0.0  # time.monotonic() before which nothing is drawn
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def begin(self) -> None:
        self._live.start()
        self._draw(Text("…", style="dim"))

    def wait(self, text: str) -> None:
        self._draw(Text(text, style="dim"))

    def show(self, piece: Piece) -> None:
        text = piece.text.translate(CONTROLS)
        if piece.thought:
            self._thought += text
        else:
            self._end_thought()
            self._blocks.push(text)
        began = time.monotonic()
        if began < self._next:
            return
        if self._thought:
            self._draw(Text(self._thought, style="dim italic"))
        else:
            for block in self._blocks.complete():
                self._print(block)
            blocks = self._blocks.growing(self._console.height)
            self._draw(Group(*(_Lines(block, gap=number > 0) for number, block in enumerate(blocks))))
        ended = time.monotonic()
        self._next = ended + (ended - began) / _BUSY

    def end(self) -> None:
        self._live.update(Text(""))
        self._live.stop()
        self._end_thought()
        for block in self._blocks.finish():
            self._print(block)

    def _end_thought(self) -> None:
        if self._thought:
            self._print(Text(self._thought.strip(), style="dim italic"))
            self._thought = ""

    def _print(self, block: RenderableType) -> None:
        self._console.print(_Lines(block, gap=self._printed), end="")
        self._printed = True

    def _draw(self, block: RenderableType) -> None:
        lines = _Lines(block, gap=self._printed, last=max(1, self._console.height - 2))
        self._live.update(lines, refresh=True)


class _Lines:
    """Something as the lines that it fills, without the empty ones around it and the spaces behind each."""

    def __init__(self, content: RenderableType, *, gap: bool, last: int | None = None) -> None:
        self._content = content
        self._gap = gap  # an empty line above it
        self._last = last  # at most this many of its lines, the last ones

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rendered = console.render_lines(self._content, options.update(height=None), pad=False)
        lines = [_trimmed(line) for line in rendered]
        while lines and not lines[0]:
            del lines[0]
        while lines and not lines[-1]:
            del lines[-1]
        if self._gap and lines:
            lines.insert(0, [])
        for line in lines if self._last is None else lines[-self._last :]:
            yield from line
            yield Segment.line()


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Rich fills lines with spaces, which nobody wants to copy."""
    line = list(line)
    while line and not (text := line[-1].text.rstrip()):
        del line[-1]
    if line:
        line[-1] = Segment(text, line[-1].style)
    return line


@contextmanager
def quiet_keys(terminal: int) -> Iterator[None]:
    """While it lasts, keys typed on `terminal` (a file descriptor) are not shown, and wait for the next prompt as they
    are: an Enter among them sends there."""
    try:
        before = termios.tcgetattr(terminal)
    except termios.error:  # no terminal
        yield
        return
    quiet = before.copy()
    quiet[0] &= ~termios.ICRNL
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(terminal, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)
