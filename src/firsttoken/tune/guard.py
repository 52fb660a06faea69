"""Runs a server's command for a tuner, and ends the server when the tuner is gone, however it went.

A script by itself, started as the leader of a process group: `guard.py TUNER-PID FILE COMMAND`. It notes its own
process id in FILE while it lives, so that a session that is resumed at once can wait until the last server is gone.
A tuner's death is seen by its children's new parent: that needs no signal, which `kill -9` would not send.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

_LOOK = 0.1  # seconds between looks at the parent
_PATIENCE = 10.0  # seconds between TERM and KILL


def main() -> int:
    tuner, file, command = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    asked: list[int] = []  # TERM goes to the whole group: the server ends by it, and then this process
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    with open(file, "w", encoding="ascii") as note:
        note.write(str(os.getpid()))
    server = subprocess.Popen(["/bin/sh", "-c", command], preexec_fn=_take_signals)
    if asked:  # before the server was there to hear it
        os.killpg(0, signal.SIGTERM)
    code = None
    while code is None and os.getppid() == tuner:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = server.wait(_LOOK)
    _end_others()
    with contextlib.suppress(OSError):
        os.unlink(file)
    if code is None:
        return 1
    return code if code >= 0 else 128 - code


def _take_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_others() -> None:
    """Nobody of the group outlives its main process, or the tuner."""
    if _others():
        os.killpg(0, signal.SIGTERM)
    end = time.monotonic() + _PATIENCE
    while left := _others():
        if time.monotonic() > end:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK / 2)


def _others() -> list[int]:
    """Members of this process's group beside itself; those that have ended and only wait for their parent left out."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError, ValueError):
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                    state, _, group = stat.read().rpartition(")")[2].split()[:3]
                if int(group) == os.getpgrp() and state not in "ZX":
                    found.append(int(name))
    return found


if __name__ == "__main__":
    sys.exit(main())
