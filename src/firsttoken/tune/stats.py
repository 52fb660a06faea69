"""What a knob's figures may claim: paired gains with t intervals, sign flips, Holm over knobs, alpha spent over looks.

A gain is a logarithm: 0.03 is 3 % better, whichever way the figure counts. Holm (1979) holds the chance of any false
claim among the knobs of a look; the looks' levels add up to the whole (Bonferroni's bound, so that no joint
distribution of looks need be known).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from firsttoken.bench.statistics import MINIMUM_PAIRS, flip_p, t_p_value, t_quantile

ALPHA = 0.05
"""Of a session: the chance that it claims that anything helps, and again that anything hurts, is half of this."""

MARGIN = 0.02
"""Gains within 2 % either way count as none."""

MUCH = 0.05
"""A gain that a session must rule out to say that all is well."""

Verdict = Literal["helps", "hurts", "equivalent", "undecided"]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A gain with its interval. `low` and `high` are infinite where nothing tells the noise."""

    gain: float
    error: float  # standard error
    dof: float
    pairs: int
    flip_p: float
    level: float = ALPHA  # two-sided, of the interval

    @property
    def p(self) -> float:
        if self.dof <= 0:
            return 1.0
        return t_p_value(self.gain / self.error, self.dof) if self.error else float(self.gain == 0)

    def half(self, level: float) -> float:
        return t_quantile(1 - level / 2, self.dof) * self.error if self.dof > 0 else math.inf

    @property
    def most(self) -> float:
        """One-sided upper bound: with all arms' together, alpha is the chance that any lies above its own."""
        return self.gain + self.half(min(2 * self.level, 1.0))

    @property
    def low(self) -> float:
        return self.gain - self.half(self.level)

    @property
    def high(self) -> float:
        return self.gain + self.half(self.level)


def estimate(gains: Sequence[float], level: float = ALPHA) -> Estimate:
    """Of paired gains, one pair at least."""
    values = np.asarray(gains, dtype=np.float64)
    n = len(values)
    error = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    return Estimate(float(values.mean()), error, n - 1, n, flip_p(values.tolist()), level)


def holm(p: Mapping[Key, float], alpha: float) -> dict[Key, float]:
    """The level at which each hypothesis is tested; one is rejected where its p is not above it.

    From the smallest p on: alpha over how many are left; after the first that stands, all others stand too.
    """
    levels: dict[Key, float] = {}
    standing = False
    smallest = alpha / max(len(p), 1)
    for place, key in enumerate(sorted(p, key=lambda one: p[one])):
        level = alpha / (len(p) - place)
        standing = standing or p[key] > level
        levels[key] = smallest if standing else level
    return levels


def verdict(found: Estimate, least: float, margin: float = MARGIN) -> Verdict:
    """By the interval at `found.level`; `least` is the gain from which a knob is worth keeping."""
    claimed = found.p <= found.level and found.flip_p <= ALPHA and found.pairs >= MINIMUM_PAIRS
    if claimed and found.gain >= max(least, margin):
        return "helps"
    if claimed and found.gain <= -margin:
        return "hurts"
    if abs(found.gain) + found.half(ALPHA) <= margin:
        return "equivalent"
    return "undecided"


def looks_for(blocks: int) -> list[tuple[int, float]]:
    """When to look, and what share of alpha each look may spend, for at most so many blocks.

    The last look has most of it. None where the blocks are too few to claim anything.
    """
    if blocks < MINIMUM_PAIRS:
        return []
    ends = sorted({MINIMUM_PAIRS, (MINIMUM_PAIRS + blocks) // 2, blocks})
    shares = {1: [1.0], 2: [0.4, 0.6], 3: [0.2, 0.3, 0.5]}[len(ends)]
    return list(zip(ends, shares, strict=True))


def wilson_low(met: int, of: int, z: float = 1.96) -> float:
    """Lower end of a share's 95 % interval (Wilson 1927)."""
    if not of:
        return 0.0
    share = met / of
    middle = share + z * z / (2 * of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max((middle - half) / (1 + z * z / of), 0.0)
