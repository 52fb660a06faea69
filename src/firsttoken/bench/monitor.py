"""GPU, host and processes sampled beside a run, by one thread that keeps below 1 % of a core."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from firsttoken.bench.records import Sample

INTERVAL = 0.2  # seconds between samples where they cost little
_SHARE_OF_A_CORE = 0.008  # that sampling may take on average


class Source(Protocol):
    """Something that can be read again and again: a card, the host, a tree of processes."""

    def read(self, at: float) -> list[Sample]:
        """Readings at `at`, seconds of time.monotonic(). Never raises for a sensor or a process that is gone."""

    def absent(self) -> list[str]:
        """One sentence for each sensor that was looked for and is not there."""


class Monitor:
    """Reads its sources from `start` to `stop`. `open_sources` gets the server's process id, None where unknown."""

    def __init__(
        self,
        open_sources: Callable[[int | None], Sequence[Source]],
        interval: float = INTERVAL,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._open_sources = open_sources
        self._interval = interval
        self._cpu_time = cpu_time
        self._sources: Sequence[Source] = ()
        self._samples: list[Sample] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, server_pid: int | None) -> None:
        """Opens the sources and takes the first sample before it returns; later ones come from a thread."""
        self.stop()
        self._sources = self._open_sources(server_pid)
        self._stopping.clear()
        self._read()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Takes a last sample. May be called twice, and without a start."""
        if self._thread is None:
            return
        self._stopping.set()
        self._thread.join()
        self._thread = None
        self._read()

    def samples(self) -> list[Sample]:
        return list(self._samples)

    def absent(self) -> list[str]:
        """In the sources' order, each sentence once."""
        return list(dict.fromkeys(text for source in self._sources for text in source.absent()))

    def pause_after(self, cost: float) -> float:
        """Seconds to rest after a sample that took `cost` seconds of a core."""
        return max(self._interval, cost / _SHARE_OF_A_CORE)

    def _run(self) -> None:
        pause = self._interval
        while not self._stopping.wait(pause):
            before = self._cpu_time()
            self._read()
            pause = self.pause_after(self._cpu_time() - before)

    def _read(self) -> None:
        for source in self._sources:
            self._samples += source.read(time.monotonic())
