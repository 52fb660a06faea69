"""A child process's tie to its supervisor: one line of configuration on stdin, then end of file when it is gone."""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Parent:
    """Reads stdin in a thread from the first moment on, so that no phase of the child can outlive its supervisor.

    A pipe's end is closed by the kernel however the supervisor dies, SIGKILL included, on every POSIX system.
    """

    def __init__(self, fd: int = 0) -> None:
        self._fd = fd
        self._line: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._watch, name="parent", daemon=True).start()

    def config(self, kind: type[T]) -> T:
        """Waits for the supervisor's configuration, a dataclass as one line of JSON."""
        return msgspec.json.decode(self._line.get(), type=kind)

    def _watch(self) -> None:
        pending = b""
        while chunk := os.read(self._fd, 65536):
            pending += chunk
            *lines, pending = pending.split(b"\n")
            for line in lines:
                self._line.put(line)
        os._exit(1)
