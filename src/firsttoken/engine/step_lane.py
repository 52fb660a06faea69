"""Where launched steps run: in order, and without the launching thread waiting for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Lane(Protocol[T]):
    """Takes work and gives back results in the same order."""

    def submit(self, work: Callable[[], T]) -> None: ...

    def take(self) -> T:
        """The oldest result not yet taken; waits for it. Raises what its work raised."""

    def close(self) -> None:
        """Runs nothing more. Work that was submitted ends first."""


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


class ThreadLane(Generic[T]):
    """One thread: what a CUDA stream is to a GPU. Compute kernels release the interpreter lock, so both sides run."""

    def __init__(self, prepare: Callable[[], None], name: str = "step") -> None:
        """`prepare` runs in the thread before any work."""
        self._work: SimpleQueue[Callable[[], T] | None] = SimpleQueue()
        self._results: SimpleQueue[T | _Raised] = SimpleQueue()
        self._prepare = prepare
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> None:
        self._work.put(work)

    def take(self) -> T:
        result = self._results.get()
        if isinstance(result, _Raised):
            raise result.error
        return result

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        self._prepare()
        while (work := self._work.get()) is not None:
            try:
                self._results.put(work())
            except BaseException as error:
                self._results.put(_Raised(error))
            del work  # it may hold the last reference to a step's tensors


class InlineLane(Generic[T]):
    """Runs work at once in the caller's thread: for a GPU, where that only queues it."""

    def __init__(self) -> None:
        self._results: deque[T | _Raised] = deque()

    def submit(self, work: Callable[[], T]) -> None:
        try:
            self._results.append(work())
        except Exception as error:
            self._results.append(_Raised(error))

    def take(self) -> T:
        result = self._results.popleft()
        if isinstance(result, _Raised):
            raise result.error
        return result

    def close(self) -> None:
        self._results.clear()
