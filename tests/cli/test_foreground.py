"""Ctrl-C while something waits for us, in a real terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys

from firsttoken.cli.foreground import own_foreground

CHILD = """
import time
from firsttoken.cli.foreground import own_foreground
with own_foreground(0):
    try:
        print("ready", flush=True)
        while True:
            time.sleep(0.05)
    except KeyboardInterrupt:
        print("child stopped", flush=True)
print("given back", flush=True)
"""
PARENT = """
import os, subprocess, sys, time
os.close(os.open(os.ttyname(0), os.O_RDWR))
subprocess.run([sys.executable, "-c", sys.argv[1]])
print("foreground", os.tcgetpgrp(0) == os.getpgrp(), flush=True)
while True:
    time.sleep(0.05)
"""


class Screen:
    """What a terminal shows, read as far as is waited for."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._unread = ""

    def wait_for(self, wanted: str) -> None:
        """Raises OSError if the program ends without it."""
        while wanted not in self._unread:
            assert select.select([self._terminal], [], [], 60)[0], f"{wanted!r} never came; there is {self._unread!r}"
            self._unread += os.read(self._terminal, 4096).decode()
        self._unread = self._unread.split(wanted, 1)[1]


def test_ctrl_c_reaches_the_child_but_not_what_waits_for_it_and_then_both_again() -> None:
    terminal, inside = pty.openpty()
    command = [sys.executable, "-c", PARENT, CHILD]
    # The first terminal that the leader of a new session opens becomes its own.
    parent = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True)
    os.close(inside)
    screen = Screen(terminal)
    screen.wait_for("ready")
    os.write(terminal, b"\x03")
    screen.wait_for("child stopped")
    screen.wait_for("given back")
    screen.wait_for("foreground True")
    os.write(terminal, b"\x03")
    assert parent.wait(10) == -signal.SIGINT  # what it printed may be lost with its terminal
    os.close(terminal)


def test_without_a_terminal_nothing_changes() -> None:
    reader, writer = os.pipe()
    group = os.getpgrp()
    with own_foreground(reader):
        assert os.getpgrp() == group
    os.close(reader)
    os.close(writer)
