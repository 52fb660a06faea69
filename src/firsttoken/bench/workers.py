"""Client processes and their supervisor: one process's interpreter must not be what a benchmark measures.

All of them read `time.monotonic()`, which is one clock for a whole host, so their records merge as they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Queue
from types import TracebackType

from firsttoken.bench.job import (
    Broken,
    Cancel,
    Decoding,
    Done,
    Finished,
    Go,
    Job,
    Prepared,
    Run,
    SelfTest,
    Start,
    Tested,
    ToClient,
    decode_from_client,
    encode_line,
)
from firsttoken.errors import ConfigError, Unavailable

_TICK = 0.2  # seconds
_LEAD = 0.1  # seconds from the last process's readiness to the common start
_LAST_WORDS = 5.0  # seconds for broken-off records to come in
_STREAMS_EACH = 16  # requests in flight a process, where there are cores for more processes


@dataclass(frozen=True, slots=True)
class Played:
    """One phase of one scenario, as the supervisor saw it."""

    started: float
    ended: float
    late: float  # seconds by which a client's event loop was late at worst


def processes_for(in_flight: int, cores: int) -> int:
    """Client processes for so many requests at once: half of the cores at most, the other half is the server's."""
    return max(1, min(cores // 2, -(-in_flight // _STREAMS_EACH)))


def client_cores(processes: int, allowed: Set[int]) -> list[list[int]]:
    """One core for each process, the last of those `allowed`; empty on fewer than 8, where nothing is pinned.

    Pinning on a small machine would take cores from the server that the clients leave idle.
    """
    if len(allowed) < 8 or processes > len(allowed) // 2:
        return []
    return [[core] for core in sorted(allowed)[-processes:]]


def allowed_cores() -> Set[int]:
    """Cores that this process may run on; empty on systems that do not say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


class ClientPool:
    """Starts the processes once and runs one job list after another on them. A context manager."""

    def __init__(self, processes: int, cores: Sequence[Sequence[int]] = ()) -> None:
        self._lines: Queue[tuple[int, bytes]] = Queue()  # an empty line: that process is gone
        self._processes: list[subprocess.Popen[bytes]] = []
        self._tested = 0.0
        for place in range(processes):
            pin = [",".join(str(core) for core in cores[place])] if cores else []
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "firsttoken.bench.worker", *pin],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,  # the terminal's Ctrl-C goes to the supervisor alone
            )
            self._processes.append(process)
            threading.Thread(target=self._read, args=(place, process), daemon=True).start()

    @property
    def size(self) -> int:
        return len(self._processes)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def ceiling(self, seconds: float = 1.0) -> float:
        """Chunks a second that all processes together can take, each against a server of its own beside it."""
        self._tested = 0.0
        self._run([SelfTest(seconds)] * self.size, lambda record: None, None)
        return self._tested

    def play(
        self, jobs: Sequence[Job], on_record: Callable[[bytes], None], on_tick: Callable[[float], None] | None = None
    ) -> Played:
        """Runs one job a process, all from one moment on. `on_record` gets each record's JSON as it ends.

        `on_tick` is called about five times a second with the start's time. On KeyboardInterrupt what is in flight is
        recorded as broken off and the interrupt goes on. Raises ConfigError where a job cannot be run, Unavailable
        where a process died.
        """
        assert len(jobs) <= self.size
        return self._run([Run(job) for job in jobs], on_record, on_tick)

    def _run(
        self,
        tasks: Sequence[Run | SelfTest],
        on_record: Callable[[bytes], None],
        on_tick: Callable[[float], None] | None,
    ) -> Played:
        for place, task in enumerate(tasks):
            self._send(place, task)
        start = 0.0
        late = 0.0
        waiting = set(range(len(tasks)))
        prepared = decoding = 0
        # What is held waits for the dialogues of every process.
        awaited = sum(len(task.job.numbers) for task in tasks if isinstance(task, Run) and task.job.tells_after)
        next_tick = 0.0
        broken: list[str] = []
        try:
            while waiting:
                place, line = self._next()
                if on_tick is not None and start and time.monotonic() >= next_tick:
                    on_tick(start)
                    next_tick = time.monotonic() + _TICK
                if not line:
                    continue
                match decode_from_client(line):
                    case Prepared():
                        prepared += 1
                    case Decoding():
                        decoding += 1
                        if decoding == awaited:
                            for other in waiting:
                                self._send(other, Go())
                    case Done(record):
                        on_record(bytes(record))
                    case Tested(rate):
                        self._tested += rate
                    case Finished(slip):
                        late = max(late, slip)
                        waiting.discard(place)
                    case Broken(text):
                        broken.append(text)
                        waiting.discard(place)
                if not start and prepared + len(broken) == len(tasks):
                    start = time.monotonic() + _LEAD
                    for other in waiting:
                        self._send(other, Cancel() if broken else Start(start))
        except KeyboardInterrupt:
            self._cancel(waiting, on_record)
            raise
        if broken:
            raise ConfigError(broken[0])
        return Played(start, time.monotonic(), late)

    def _next(self) -> tuple[int, bytes]:
        """The next line, or an empty one after a tick. Raises Unavailable where a process died."""
        try:
            place, line = self._lines.get(timeout=_TICK)
        except Empty:
            return -1, b""
        if not line:
            code = self._processes[place].wait()
            raise Unavailable(f"a client process of the benchmark ended with code {code}: see its message above")
        return place, line

    def _cancel(self, waiting: set[int], on_record: Callable[[bytes], None]) -> None:
        for place in waiting:
            self._send(place, Cancel())
        end = time.monotonic() + _LAST_WORDS
        while waiting and time.monotonic() < end:
            place, line = self._next()
            if line:
                message = decode_from_client(line)
                if isinstance(message, Done):
                    on_record(bytes(message.record))
                elif isinstance(message, Finished | Broken):
                    waiting.discard(place)

    def _send(self, place: int, message: ToClient) -> None:
        stream = self._processes[place].stdin
        assert stream is not None
        try:
            stream.write(encode_line(message))
            stream.flush()
        except BrokenPipeError:
            return  # its reader thread tells

    def _read(self, place: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put((place, line))
        self._lines.put((place, b""))

    def close(self) -> None:
        """Ends the processes: each leaves when its stdin ends."""
        for process in self._processes:
            if process.stdin is not None:
                with suppress(BrokenPipeError):  # it died with something unread
                    process.stdin.close()
        for process in self._processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def __enter__(self) -> ClientPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
