"""How long a step takes, from what it computes. It sizes prefill chunks that run beside decoding rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step computes."""

    decode_rows: int = 0
    decode_context: int = 0  # tokens in the contexts of the decode rows together: KV that is read
    prefill_tokens: int = 0
    prefill_pairs: int = 0  # (new token, token it attends to) pairs of the prefill rows

    @property
    def num_tokens(self) -> int:
        return self.decode_rows + self.prefill_tokens

    def with_chunk(self, start: int, num_tokens: int) -> StepLoad:
        """This load and a prefill chunk of `num_tokens` over `start` tokens already in the cache."""
        pairs = num_tokens * start + num_tokens * (num_tokens + 1) // 2
        return StepLoad(
            self.decode_rows, self.decode_context, self.prefill_tokens + num_tokens, self.prefill_pairs + pairs
        )


@dataclass(frozen=True, slots=True)
class StepCost:
    """A step's milliseconds as a linear model. Coefficients are in milliseconds and never negative.

    Up to `free_tokens` tokens ride along with the read of the weights; each one beyond costs `token_ms`.
    """

    fixed_ms: float
    token_ms: float
    pair_ms: float = 0.0
    context_ms: float = 0.0  # per token of decode context
    free_tokens: int = 0

    def ms(self, load: StepLoad) -> float:
        return (
            self.fixed_ms
            + self.token_ms * max(0, load.num_tokens - self.free_tokens)
            + self.pair_ms * load.prefill_pairs
            + self.context_ms * load.decode_context
        )

    def largest_chunk(self, load: StepLoad, start: int, budget_ms: float, limit: int) -> int:
        """The most tokens, up to `limit`, by which `load` may grow within the budget by a chunk that begins at `start`.

        0 when nothing fits.
        """
        if self.ms(load.with_chunk(start, limit)) <= budget_ms:
            return limit
        fits, too_many = 0, limit
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self.ms(load.with_chunk(start, middle)) <= budget_ms:
                fits = middle
            else:
                too_many = middle
        return fits

    def with_pairs_as_context(self) -> StepCost:
        """The same with the cost of a pair that nobody measured: at most what a token of decode context costs.

        A chunk's rows share one read of the keys and values, so in truth a pair is cheaper.
        """
        return replace(self, pair_ms=max(self.pair_ms, self.context_ms))

    @classmethod
    def fit(cls, points: Iterable[tuple[StepLoad, float]]) -> StepCost:
        """The model nearest to measured (load, milliseconds) points, by least squares of the relative error.

        Each measured number of tokens is tried as `free_tokens`. Raises ValueError without points.
        """
        measured = list(points)
        if not measured:
            raise ValueError("a step cost needs at least one measured step")
        loads = [load for load, _ in measured]
        ms = np.array([max(ms, 1e-6) for _, ms in measured])
        best: StepCost | None = None
        least = float("inf")
        for knee in sorted({0, *(load.num_tokens for load in loads)}):
            columns = [(1.0, max(0, load.num_tokens - knee), load.prefill_pairs, load.decode_context) for load in loads]
            weighted = np.array(columns, dtype=np.float64) / ms[:, None]
            coefficients, error = _non_negative(weighted)
            if error < least * (1 - 1e-9):  # of equally good ones the smallest knee, which promises least
                least = error
                fixed, token, pair, context = coefficients
                best = cls(fixed, token, pair, context, knee)
        assert best is not None
        return best


def _non_negative(columns: NDArray[Any]) -> tuple[list[float], float]:
    """Coefficients >= 0 whose weighted sum of columns [points, n] is nearest to 1, and the squared error.

    There are four columns, so every subset is tried.
    """
    points, n = columns.shape
    ones = np.ones(points)
    best, least = [0.0] * n, float(points)
    for subset in range(1, 1 << n):
        chosen = [i for i in range(n) if subset >> i & 1]
        part = columns[:, chosen]
        scale = np.linalg.norm(part, axis=0)
        if not scale.all():
            continue  # a load that was never measured
        solution = np.linalg.lstsq(part / scale, ones, rcond=None)[0] / scale
        error = float(((part @ solution - ones) ** 2).sum())
        if (solution >= 0).all() and error < least * (1 - 1e-9):
            least = error
            best = [0.0] * n
            for i, value in zip(chosen, solution, strict=True):
                best[i] = float(value)
    return best, least
