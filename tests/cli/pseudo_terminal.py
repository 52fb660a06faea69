"""A program in a terminal of its own, driven by a person who waits for what they see."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fcntl import ioctl

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[=>]")


class PseudoTerminal:
    """What it shows is kept without the sequences that colour it and move the cursor."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._fd, inside = pty.openpty()
        ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        # The first terminal that a new session opens is its own: from then on Ctrl-C is a signal to what runs in it.
        opener = "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); os.execv(sys.argv[1], sys.argv[1:])"
        # It answers no question about where its cursor is.
        plain = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", opener, *command],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            env={**os.environ, **plain, **environment},
        )
        os.close(inside)
        self.raw = ""
        self.screen = ""

    def wait_for(self, pattern: str, seconds: float = 60) -> None:
        """Reads on until the part of the screen that has not been waited for yet matches, and forgets that part."""
        deadline = time.monotonic() + seconds
        while True:
            if found := re.search(pattern, self.screen):
                self.screen = self.screen[found.end() :]
                return
            assert time.monotonic() < deadline, f"{pattern!r} is not on the screen:\n{self.screen}"
            if select.select([self._fd], [], [], 0.1)[0]:
                try:
                    self.raw += os.read(self._fd, 65536).decode(errors="replace")
                except OSError:  # the program has ended
                    deadline = 0
                whole, self.raw = _without_half_an_escape(self.raw)
                self.screen += _ESCAPES.sub("", whole)

    @property
    def echoes(self) -> bool:
        """Whether what is typed is shown by the terminal itself."""
        return bool(termios.tcgetattr(self._fd)[3] & termios.ECHO)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        os.close(self._fd)


@contextmanager
def in_terminal(command: Sequence[str], **environment: str) -> Iterator[PseudoTerminal]:
    terminal = PseudoTerminal(command, environment)
    try:
        yield terminal
    finally:
        terminal.close()


def _without_half_an_escape(text: str) -> tuple[str, str]:
    """What can be shown now, and the beginning of a sequence whose end has not come yet."""
    start = text.rfind("\x1b")
    if start < 0 or _ESCAPES.match(text, start):
        return text, ""
    return text[:start], text[start:]
