"""What a difference between two servers may claim: paired log-ratios with t intervals, checked by sign flips.

Runs drift (clocks, neighbours, temperature), so two sides are measured in pairs, close in time and in random order, and
each pair gives one number: the logarithm of B over A. A t interval over those takes their noise from the data and needs
near-normal log-ratios; the sign-flip test needs only that they would be symmetric about zero if A and B were equal.
A difference is claimed where both say so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

MINIMUM_PAIRS = 6
"""With fewer, the sign-flip test cannot reach 5 %, so no difference can be claimed."""

Verdict = Literal["better", "worse", "equivalent", "undecided"]
_ALPHA = 0.05
_EXACT_FLIPS = 14  # up to 2^14 sign patterns are all tried, beyond that as many are drawn


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """B over A from pairs of positive figures, with an interval; 1.03 means that B's figure is 3 % higher."""

    pairs: int
    ratio: float  # geometric mean
    low: float  # 0.0 and infinity where one pair alone cannot tell its noise
    high: float
    confidence: float
    flip_p: float  # share of sign patterns whose mean is as far from zero as the one seen

    @property
    def differs(self) -> bool:
        """Whether a difference may be claimed at all, however small."""
        return (self.low > 1.0 or self.high < 1.0) and self.flip_p <= _ALPHA

    def verdict(self, *, lower_is_better: bool, margin: float) -> Verdict:
        """What may be said of B. `margin` 0.02: within 2 % either way counts as the same."""
        if self.low >= 1 / (1 + margin) and self.high <= 1 + margin:
            return "equivalent"
        if not self.differs:
            return "undecided"
        return "better" if (self.ratio < 1.0) == lower_is_better else "worse"


def paired_ratio(a: Sequence[float], b: Sequence[float], confidence: float = 1 - _ALPHA) -> PairedRatio:
    """Compares paired figures; a[i] and b[i] were measured close in time. Raises ValueError unless all are positive."""
    if len(a) != len(b) or not a:
        raise ValueError("paired figures come in equal numbers, one pair at least")
    if min(*a, *b) <= 0 or not all(map(math.isfinite, (*a, *b))):
        raise ValueError("a ratio needs positive, finite figures")
    logs = np.log(np.asarray(b, dtype=np.float64)) - np.log(np.asarray(a, dtype=np.float64))
    n, mean = len(logs), float(logs.mean())
    flip = flip_p(logs.tolist())
    if n == 1:
        return PairedRatio(1, math.exp(mean), 0.0, math.inf, confidence, flip)
    half = t_quantile(0.5 + confidence / 2, n - 1) * float(logs.std(ddof=1)) / math.sqrt(n)
    return PairedRatio(n, math.exp(mean), math.exp(mean - half), math.exp(mean + half), confidence, flip)


def flip_p(differences: Sequence[float]) -> float:
    """Two-sided p-value of the sign-flip test (Fisher 1935): exact up to 14 pairs, else from fixed random patterns."""
    values = np.asarray(differences, dtype=np.float64)
    seen = abs(float(values.sum()))
    sums = np.abs(_signs(len(values)) @ values)
    as_far = int((sums >= seen * (1 - 1e-12)).sum())
    if len(values) <= _EXACT_FLIPS:
        return as_far / len(sums)
    return (as_far + 1) / (len(sums) + 1)  # the pattern seen is one of those possible


@lru_cache(maxsize=8)
def _signs(n: int) -> NDArray[np.float64]:
    """[patterns, n] of +1 and -1."""
    if n <= _EXACT_FLIPS:
        bits = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    else:
        bits = np.random.default_rng(n).integers(0, 2, size=(1 << _EXACT_FLIPS, n))
    return np.where(bits == 1, 1.0, -1.0)


@lru_cache(maxsize=256)
def t_quantile(p: float, dof: float) -> float:
    """Student's t below which a share `p` lies, to about 12 digits, for any positive degrees of freedom."""
    if not 0 < p < 1 or dof <= 0:
        raise ValueError("a t quantile needs 0 < p < 1 and positive degrees of freedom")
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -t_quantile(1 - p, dof)
    low, high = 0.0, 1.0
    while _upper_tail(high, dof) > 1 - p:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _upper_tail(middle, dof) > 1 - p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_p_value(t: float, dof: float) -> float:
    """Two-sided: the chance that Student's t lies at least as far from zero as `t`."""
    return min(2 * _upper_tail(abs(t), dof), 1.0) if math.isfinite(t) else 0.0


def _upper_tail(t: float, dof: float) -> float:
    """Chance that Student's t exceeds `t` >= 0."""
    x = dof / (dof + t * t)
    return 0.5 * _incomplete_beta(x, t * t / (dof + t * t), dof / 2, 0.5)


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """Regularised incomplete beta function I_x(a, b); `rest` is 1 - x without its rounding."""
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    )  # common to both sides of the symmetry
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(x, a, b) / a
    return 1.0 - front * _continued_fraction(rest, b, a) / b


def _continued_fraction(x: float, a: float, b: float) -> float:
    """The fraction of I_x(a, b) (Abramowitz and Stegun 26.5.8), evaluated by the modified Lentz method."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 + term * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + term / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value
