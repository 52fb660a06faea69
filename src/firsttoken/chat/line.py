"""Reading a line from the user, with editing and history where the terminal can."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module

from firsttoken.chat.terminal import ReadLine


def terminal_line() -> ReadLine:
    """The reader for standard input. Bytes that are not valid text are replaced, never an error."""
    if sys.stdin.isatty():
        with suppress(ImportError):  # some Pythons are built without it
            import_module("readline")  # its import alone gives `input` editing, history and whole wide characters
        return input
    return _piped_line


def _piped_line(prompt: str) -> str:
    """A line of a pipe or file; no prompt, nobody would see it."""
    raw = sys.stdin.buffer.readline()
    if not raw:
        raise EOFError
    return raw.decode("utf-8", errors="replace").rstrip("\r\n")
