"""The supervisor's child processes: the engine and the API workers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from firsttoken.config import EngineConfig, ServerConfig

# -P: a module in the current folder must never shadow one of ours
ENGINE = (sys.executable, "-P", "-m", "firsttoken.engine.process")
WORKER = (sys.executable, "-P", "-m", "firsttoken.server.worker")


@dataclass(frozen=True, slots=True)
class Commands:
    """What to run; each gets its file descriptors as further arguments."""

    engine: Sequence[str] = ENGINE  # + listening Unix socket
    worker: Sequence[str] = WORKER  # + listening TCP socket, status pipe


class Child:
    """One child. Its stdin carries the configuration and then stays open: its end of file tells that we are gone."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        fds: Sequence[int] = (),
        *,
        stdout: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`fds` are inherited and named as further arguments; `stdout` and `environment` are ours where left out."""
        self.name = name
        self._popen = subprocess.Popen(
            [*command, *map(str, fds)],
            stdin=subprocess.PIPE,
            stdout=stdout,
            env=environment,
            pass_fds=fds,
            process_group=0,  # the terminal's Ctrl-C is for the supervisor alone
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        return self._popen.poll()

    def configure(self, config: EngineConfig | ServerConfig) -> None:
        assert self._popen.stdin
        with contextlib.suppress(BrokenPipeError):  # it has died; that is seen elsewhere
            self._popen.stdin.write(msgspec.json.encode(config) + b"\n")
            self._popen.stdin.flush()

    def terminate(self) -> None:
        self._popen.terminate()

    def kill(self) -> None:
        """Ends it at once and waits for that."""
        self._popen.kill()
        self._popen.wait()
        assert self._popen.stdin
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()

    def death(self) -> str:
        """How it ended, for a sentence."""
        code = self._popen.returncode
        if code == -signal.SIGKILL:
            return f"{self.name} was killed (signal 9), which the system does when memory runs out"
        if code is not None and code < 0:
            return f"{self.name} died of signal {-code} ({signal.strsignal(-code)})"
        return f"{self.name} ended with status {code}"


class Worker(Child):
    """An API worker, which also tells when it serves."""

    def __init__(self, name: str, command: Sequence[str], listener: int) -> None:
        self.status, theirs = os.pipe()
        os.set_blocking(self.status, False)
        try:
            super().__init__(name, command, (listener, theirs))
        finally:
            os.close(theirs)
        self.ready = False
        self.failure = ""
        self._pending = b""

    def read_status(self) -> bool:
        """Takes in what the worker has said; False at the pipe's end."""
        while True:
            try:
                data = os.read(self.status, 4096)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                word, _, rest = line.decode().partition(" ")
                self.ready |= word == "ready"
                self.failure = rest if word == "failed" else self.failure

    def kill(self) -> None:
        super().kill()
        os.close(self.status)
