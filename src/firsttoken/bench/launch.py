"""A server that the benchmark starts itself: in a process group of its own, watched until ready, stopped whole."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from firsttoken.errors import Unavailable

_POLL = 0.05  # seconds between looks at a starting server: the grain of "launch to ready"


class LaunchedServer:
    """Runs a command line through the shell, its output in a log. A context manager that stops the group."""

    def __init__(self, command: str, log: Path, *, patience: float = 30.0) -> None:
        """Starts the command. `patience`: seconds between TERM and KILL."""
        self.command = command
        self.log = log
        self._patience = patience
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self.started = time.monotonic()
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,  # its own, so that all of it can be stopped and Ctrl-C does not reach it first
            )

    @property
    def pid(self) -> int:
        """Of the group's leader."""
        return self._process.pid

    def wait_ready(self, is_ready: Callable[[], bool], timeout: float) -> float:
        """Seconds from launch to the first time that `is_ready` says so. Raises Unavailable in one sentence."""
        while True:
            if is_ready():
                ready = time.monotonic() - self.started
                self.check()
                return ready
            self.check()
            if time.monotonic() - self.started > timeout:
                raise Unavailable(
                    f"the launched server was not ready after {timeout:g} s; its log's last line: {self.last_line()} "
                    f"(all of it in {self.log}); a longer wait is --ready-timeout"
                )
            time.sleep(_POLL)

    def check(self) -> None:
        """Raises Unavailable where the command has ended by itself."""
        code = self._process.poll()
        if code is not None:
            how = f"by signal {-code}" if code < 0 else f"with code {code}"
            raise Unavailable(
                f"the launched server ended {how}; its log's last line: {self.last_line()} (all of it in {self.log})"
            )

    def wait(self, timeout: float) -> int:
        """The exit code of a command that ends by itself. Raises subprocess.TimeoutExpired."""
        return self._process.wait(timeout)

    def stop(self) -> None:
        """TERM to the whole group, KILL to what is left after `patience`; returns when nobody is left."""
        gone = False
        try:
            gone = not self._signal(signal.SIGTERM) or self._gone_within(self._patience)
        finally:  # also where the user's next Ctrl-C ends the patience
            if not gone:
                self._signal(signal.SIGKILL)
                self._gone_within(10.0)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> bool:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False  # nobody is left; macOS says it with EPERM where only zombies are
        return True

    def _gone_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._process.poll()  # reaps the leader, which would else count as a member
            if not group_members(self.pid):
                return True
            time.sleep(_POLL)
        return False

    def last_line(self) -> str:
        """What its log says last."""
        with self.log.open("rb") as stream:
            stream.seek(max(0, self.log.stat().st_size - 4096))
            lines = stream.read().decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")

    def __enter__(self) -> LaunchedServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def group_members(group: int) -> list[int]:
    """Process ids of a group. Zombies are left out: a container without an init keeps them for ever."""
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return []
        return [group]
    members: list[int] = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # "pid (name) state parent group ...": the name may hold spaces and brackets.
            state, _, owner = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # it ended meanwhile
        if int(owner) == group and state not in "ZX":
            members.append(int(entry.name))
    return members
