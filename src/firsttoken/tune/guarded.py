"""Commands under a guard: what a tuner started does not outlive it, and a resumed one waits for what is left."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path

from firsttoken.bench.launch import group_members
from firsttoken.errors import Unavailable

_WAIT = 30.0  # seconds for a guard's group to go


def guarded(command: str, note: Path) -> str:
    """The command line that runs `command` under a guard of this process, noted in a file."""
    script = Path(__file__).with_name("guard.py")
    words = [sys.executable, "-I", "-S", str(script), str(os.getpid()), str(note), command]
    return f"exec {shlex.join(words)}"


def end_leftover(note: Path) -> None:
    """Ends the group that a killed session's guard still leads. Raises Unavailable where it does not go."""
    try:
        group = int(note.read_text())
    except (OSError, ValueError):
        return
    if _is_guard(group, note):
        end = time.monotonic() + _WAIT
        while group_members(group):
            if time.monotonic() > end:
                try:
                    os.killpg(group, signal.SIGKILL)
                except ProcessLookupError:
                    break
                if time.monotonic() > end + 5:
                    raise Unavailable(f"the last session's server (process group {group}) does not end: stop it first")
            time.sleep(0.1)
    note.unlink(missing_ok=True)


def _is_guard(pid: int, note: Path) -> bool:
    """Whether the process is the guard that wrote the file: numbers of processes are used again."""
    proc = Path(f"/proc/{pid}/cmdline")
    try:
        return str(note).encode() in proc.read_bytes().split(b"\0")
    except OSError:
        return not Path("/proc/self").exists() and bool(group_members(pid))
