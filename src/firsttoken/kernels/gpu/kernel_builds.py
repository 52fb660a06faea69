"""Compiles a list of kernels in processes of their own: most of a compilation of ours is Python, so threads would wait
for each other."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence

import msgspec

from firsttoken.kernels.gpu.kernel_list import Wanted

_TURN = 0.05  # seconds between two looks at how far they are


class KernelBuilds:
    """Under way from construction on. Whoever drops it drops what has not begun; its processes end with this one."""

    def __init__(
        self,
        wanted: Collection[Wanted],
        capability: tuple[int, int],
        processes: int,
        worker: Sequence[str] = (sys.executable, "-m", "firsttoken.kernels.gpu.compile_worker"),
    ) -> None:
        """`processes` at most, each of some hundred megabytes. `worker` is what runs in each, before the capability."""
        self.failures: list[str] = []  # one a kernel: its name and why; it is compiled where it is first used
        self._why_left = "no process was left to compile it"
        self._jobs, self._count = deque(sorted(wanted)), len(wanted)
        major, minor = capability
        self._command = [*worker, f"{major}{minor}"]
        self._threads = [
            threading.Thread(target=self._work, name=f"kernels-{i}", daemon=True)
            for i in range(min(processes, self._count))
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, tell: Callable[[float], None]) -> None:
        """Until all are compiled; `tell` gets the share that has begun."""
        for thread in self._threads:
            while thread.is_alive():
                tell(1 - len(self._jobs) / self._count)
                thread.join(_TURN)
        self.failures += [f"{job.name}: {self._why_left}" for job in self._jobs]

    def close(self) -> None:
        """Begins no more."""
        self._jobs.clear()

    def _work(self) -> None:
        pipe = subprocess.PIPE
        try:
            # No buffers: closing one that a dead process did not take would raise once more
            worker = subprocess.Popen(self._command, bufsize=0, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        except OSError as error:  # others may compile everything
            self._why_left = f"a process could not be started ({error})"
            return
        with worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            while True:
                try:
                    job = self._jobs.popleft()
                except IndexError:
                    return
                try:
                    worker.stdin.write(msgspec.json.encode(job) + b"\n")
                    answer = worker.stdout.readline()
                except BrokenPipeError:
                    answer = b""
                if not answer:
                    self.failures.append(f"{job.name}: its process was killed, perhaps for want of memory")
                    return
                if answer != b"\n":
                    self.failures.append(f"{job.name}: {answer.decode(errors='replace').strip()}")
