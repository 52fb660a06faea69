"""The GPU that launches are measured on: cold weights, CUDA graphs, the device's own clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from triton.errors import TritonError

from firsttoken.errors import OutOfMemory
from firsttoken.kernels.gpu.candidates import Job, Limits
from firsttoken.kernels.gpu.card_facts import read_card
from firsttoken.kernels.gpu.launch import Product
from firsttoken.kernels.gpu.measured_product import Operands, operands
from firsttoken.kernels.gpu.search import Compiler
from firsttoken.kernels.linear import GpuLinear

_CACHES = 4  # bytes of weights that are read before one comes again, in sizes of the card's last cache
_REPLAY_BYTES = 3e9  # that one reading reads about: a millisecond on the fastest cards, so that its ends do not count
_FEWEST_CALLS, _MOST_CALLS = 8, 256

Timer = Callable[[Callable[[int], object], int], Callable[[], float]]
"""Prepares calls 0, 1, … of a function to be timed together: a reading is microseconds a call."""


class GpuCard:
    """Times products on a device; the weights of each shape are made once and shared by all row counts."""

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype,
        compiler: Compiler,
        limits: Limits,
        cache_bytes: int,
        timer: Timer | None = None,
    ) -> None:
        """`cache_bytes` is the card's last cache."""
        self.limits, self.compile = limits, compiler.compile
        self._device, self._dtype, self._cache_bytes = device, dtype, cache_bytes
        self._timer = timer or graph_timer()
        self._weights: dict[tuple[str, int, int, bool, str], Sequence[GpuLinear]] = {}
        self._operands: dict[Job, Operands] = {}

    def reader(self, job: Job, product: Product) -> Callable[[], float] | None:
        """As `search.Card`."""
        made = self._made(job)
        calls = max(len(made.weights), int(_REPLAY_BYTES / job.weight_bytes), _FEWEST_CALLS)
        try:
            return self._timer(lambda index: made.run(product, index), min(calls, _MOST_CALLS))
        except TritonError:  # more shared memory or registers than the card has
            return None

    def error(self, job: Job, product: Product) -> float:
        """As `search.Card`."""
        return self._made(job).error(product)

    def forget(self) -> None:
        """Gives the weights' memory back."""
        self._weights.clear()
        self._operands.clear()
        torch.cuda.empty_cache()

    def _made(self, job: Job) -> Operands:
        if job not in self._operands:
            try:
                self._operands[job] = self._make(job)
            except torch.cuda.OutOfMemoryError as error:
                raise OutOfMemory(
                    f"The card's free memory does not hold the weights that {job.name} is measured with; stop what "
                    "else runs on it."
                ) from error
        return self._operands[job]

    def _make(self, job: Job) -> Operands:
        shape = (job.op, job.n, job.k, job.bias, job.weight)
        copies = 0 if shape in self._weights else 1 + -(-_CACHES * self._cache_bytes // job.weight_bytes)
        made = operands(job, self._device, self._dtype, copies)
        return made.with_weights(self._weights.setdefault(shape, made.weights))


def limits_of(device: torch.device) -> Limits:
    card = read_card(device.index)
    return Limits(card.shared_bytes, card.has_dependent_launch, card.has_fp8)


def graph_timer() -> Timer:
    """Times calls as one CUDA graph, as a decode step runs them: each begins while the one before ends."""
    stream = torch.cuda.Stream()

    def capture(run: Callable[[int], object], calls: int, pool: Any) -> torch.cuda.CUDAGraph:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=pool)
            try:
                for index in range(calls):
                    run(index)
            finally:
                graph.capture_end()
        return graph

    # Graphs come and go. Their memory is that of this one, which stays: torch refuses a pool that no graph holds.
    anchor = capture(lambda index: torch.zeros(1, device="cuda"), 1, torch.cuda.graph_pool_handle())

    def prepare(run: Callable[[int], object], calls: int) -> Callable[[], float]:
        run(0)  # loads the kernel; makes what it keeps between calls
        graph = capture(run, calls, anchor.pool())
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

        def read() -> float:
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) * 1e3 / calls

        read()
        return read

    return prepare
