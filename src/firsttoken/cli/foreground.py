"""Ctrl-C for this process alone, while `make` or a script waits for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def own_foreground(terminal: int) -> Iterator[None]:
    """While it lasts, the keys of `terminal` (a file descriptor) that send signals reach no other process.

    Ctrl-C in a chat stops an answer, but it also reaches the `make` that started the chat, which would call a chat
    that ended well interrupted. So this process becomes the terminal's foreground group and gives the place back.
    It does nothing where the process is alone in its group already, or not in the foreground.
    """
    others = os.getpgrp()
    if others == os.getpid() or not _is_foreground(terminal, others):
        yield
        return
    os.setpgid(0, 0)
    _give(terminal, os.getpgrp())
    # A shell waits for the other group: it would not notice that we were stopped, and nobody could wake us.
    stop = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, stop)
        with suppress(OSError):  # the others, or the terminal itself, are gone
            _give(terminal, others)
            os.setpgid(0, others)


def _is_foreground(terminal: int, group: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == group
    except OSError:  # not this session's terminal
        return False


def _give(terminal: int, group: int) -> None:
    """Makes `group` the foreground; a process that is not in it may do so only while it ignores SIGTTOU."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(terminal, group)
    finally:
        signal.signal(signal.SIGTTOU, before)
