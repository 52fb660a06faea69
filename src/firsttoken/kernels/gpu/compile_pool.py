"""Compiles launches in processes of their own, into the cache that Triton keeps on disk.

Threads would wait for each other: the part of Triton that is written in Python takes most of a compilation of ours.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch
from triton.errors import TritonError

from firsttoken.errors import FirstTokenError
from firsttoken.kernels.gpu.candidates import Job
from firsttoken.kernels.gpu.card_facts import CardFacts, imagined
from firsttoken.kernels.gpu.launch import Product
from firsttoken.kernels.gpu.measured_product import operands


@dataclass(frozen=True, slots=True)
class Build:
    """What a launch is compiled for, besides its own shape."""

    dtype: torch.dtype
    card: CardFacts

    def __call__(self, launch: tuple[Job, Product]) -> bool:
        """Compiles one launch; False where Triton refuses it."""
        job, product = launch
        try:
            with imagined(self.card):
                operands(job, torch.device("meta"), self.dtype).run(product)
        except TritonError:
            return False
        return True


class CompilePool:
    """Some processes, started at the first use."""

    def __init__(
        self, build: Callable[[tuple[Job, Product]], bool], processes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`build` travels to the processes, so it must be picklable."""
        self.processes = processes
        self._build, self._clock = build, clock
        self._pool = ProcessPoolExecutor(
            processes, mp_context=multiprocessing.get_context("spawn"), initializer=_leave_ctrl_c_to_the_parent
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def compile(
        self, launches: Sequence[tuple[Job, Product]], until: float, tell: Callable[[str], None]
    ) -> list[tuple[Job, Product]]:
        """As `search.Card`. Returns when every process is idle again. Raises FirstTokenError where one was killed."""
        waiting, done = list(launches)[::-1], 0
        running: dict[Future[bool], tuple[Job, Product]] = {}
        good: list[tuple[Job, Product]] = []
        try:
            while True:
                while waiting and len(running) < self.processes and self._clock() < until:
                    launch = waiting.pop()
                    running[self._pool.submit(self._build, launch)] = launch
                if not running:
                    return good
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    launch, done = running.pop(future), done + 1
                    if future.result():
                        good.append(launch)
                    tell(f"compiling, {done} of {len(launches)}")
        except BrokenProcessPool as error:
            raise FirstTokenError(
                "A process that compiled kernels was killed, probably for want of memory; close other programs, or "
                "give --processes a smaller number."
            ) from error


def _leave_ctrl_c_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
