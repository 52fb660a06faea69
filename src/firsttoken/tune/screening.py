"""Two-level screening in pairs: every run tells about every knob.

In a pair one run has about half of the knobs changed, and its mirror, made right before or after it, has the others.
The machine's drift is the same for both and cancels, and so does every interaction of two knobs, because a product of
two signs is the same in a row and its mirror (a fold-over: Box and Hunter 1961). What is left is a sum of the knobs'
own gains, averaged over the states of the others, which least squares takes apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firsttoken.bench.statistics import flip_p
from firsttoken.tune.arms import Arm, Config
from firsttoken.tune.stats import Estimate, holm

_DRAWS = 30  # random designs, of which the best is taken
_PRIOR_GAIN, _PRIOR_NOISE = 0.5, 0.05  # standard deviations before anything is measured
_SURE = 4.0  # standard deviations

Pair = tuple[Config, Config]
Measured = tuple[Config, Config, float]
"""Two configs and the gain of the second over the first."""


@dataclass(frozen=True, slots=True)
class Screening:
    """What the pairs say of each arm, and of the noise of a pair."""

    arms: dict[Arm, Estimate]
    noise: float  # standard deviation of a pair's gain that no knob explains
    dof: int


def plan_pairs(arms: Sequence[Arm], pairs: int, seed: int) -> list[Pair]:
    """Rows and their mirrors; of random balanced designs the one that tells most (D-optimal).

    In an order in which the first pairs tell as much as they can, since a plan may be cut short.
    """
    draw = np.random.default_rng(seed)
    knobs = list(dict.fromkeys(arm.knob for arm in arms))
    choices = {knob: [arm for arm in arms if arm.knob == knob] for knob in knobs}
    best: list[Pair] = []
    most = -math.inf
    for _ in range(_DRAWS if len(arms) > 1 else 1):
        plan = _draw(choices, pairs, draw)
        x = _matrix([(*pair, 0.0) for pair in plan], arms)
        _, worth = np.linalg.slogdet(x.T @ x + 1e-6 * np.eye(len(arms)))
        if worth > most:
            best, most = plan, float(worth)
    return _telling_first(best, arms)


def _telling_first(plan: Sequence[Pair], arms: Sequence[Arm]) -> list[Pair]:
    """Each pair is the one that adds most to what those before it tell."""
    x = _matrix([(*pair, 0.0) for pair in plan], arms)
    known = 1e-2 * np.eye(len(arms))
    order: list[int] = []
    for _ in plan:
        gains = x @ np.linalg.inv(known)
        worth = np.einsum("pa,pa->p", gains, x)  # the matrix determinant lemma
        worth[order] = -math.inf
        order.append(int(np.argmax(worth)))
        known += np.outer(x[order[-1]], x[order[-1]])
    return [plan[at] for at in order]


def _draw(choices: dict[str, list[Arm]], pairs: int, draw: np.random.Generator) -> list[Pair]:
    """Each knob is changed in the first run of half of the pairs, each of its values equally often."""
    first: list[set[Arm]] = [set() for _ in range(pairs)]
    second: list[set[Arm]] = [set() for _ in range(pairs)]
    for values in choices.values():
        order = draw.permutation(pairs)
        for place, pair in enumerate(order):
            arm = values[(place // 2) % len(values)]
            (first, second)[place % 2][pair].add(arm)
    return [(frozenset(a), frozenset(b)) for a, b in zip(first, second, strict=True)]


def fit(measured: Sequence[Measured], arms: Sequence[Arm], alpha: float) -> Screening:
    """Gains by least squares. A pair of equal configs tells of noise alone. Arms that no pair can tell are left out.

    Intervals are at Holm's levels over all arms together.
    """
    gains = np.array([gain for _, _, gain in measured])
    x = _matrix(measured, arms)
    told = _identifiable(x)
    known = [arm for arm, good in zip(arms, told, strict=True) if good]
    x = x[:, told]
    inverse = np.linalg.inv(x.T @ x) if known else np.zeros((0, 0))
    effects = inverse @ x.T @ gains
    left = gains - x @ effects
    dof = len(gains) - len(known)
    noise = math.sqrt(float(left @ left) / dof) if dof > 0 else math.inf
    found = {
        arm: Estimate(
            gain=float(effects[at]),
            error=noise * math.sqrt(float(inverse[at, at])),
            dof=dof,
            pairs=int(np.count_nonzero(x[:, at])),
            flip_p=_flip_p(x[:, at], left, float(effects[at])),
        )
        for at, arm in enumerate(known)
    }
    levels = holm({arm: one.p for arm, one in found.items()}, alpha)
    return Screening({arm: replace(one, level=levels[arm]) for arm, one in found.items()}, noise, max(dof, 0))


@dataclass(frozen=True, slots=True)
class Leaning:
    """What the pairs so far let one expect of an arm: enough to spend time by, too little for a claim."""

    gain: float
    doubt: float  # standard deviation

    @property
    def low(self) -> float:
        return self.gain - _SURE * self.doubt

    @property
    def high(self) -> float:
        return self.gain + _SURE * self.doubt


def lean(measured: Sequence[Measured], arms: Sequence[Arm]) -> dict[Arm, Leaning]:
    """The posterior of a normal prior about no gain, so that arms which no pair tells apart yet stay in doubt."""
    noises = [gain for first, second, gain in measured if first == second]
    variance = (math.fsum(g * g for g in noises) + 2 * _PRIOR_NOISE**2) / (len(noises) + 2)
    x = _matrix(measured, arms)
    spread = np.linalg.inv(x.T @ x / variance + np.eye(len(arms)) / _PRIOR_GAIN**2)
    means = spread @ x.T @ np.array([gain for _, _, gain in measured]) / variance
    return {arm: Leaning(float(means[at]), math.sqrt(float(spread[at, at]))) for at, arm in enumerate(arms)}


def _flip_p(signs: NDArray[np.float64], left: NDArray[np.float64], effect: float) -> float:
    """Sign flips of the pairs' gains with the other arms' part taken off (Freedman and Lane 1983)."""
    used = signs != 0
    return flip_p((signs[used] * left[used] + effect).tolist())


def _matrix(measured: Sequence[Measured], arms: Sequence[Arm]) -> NDArray[np.float64]:
    """[pairs, arms]: whether an arm is in the second config, less whether it is in the first."""
    rows = [[float(arm in second) - float(arm in first) for arm in arms] for first, second, _ in measured]
    return np.array(rows).reshape(len(measured), len(arms))


def _identifiable(x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Columns that are no sum of those before them."""
    told = np.zeros(x.shape[1], dtype=np.bool_)
    rank = 0
    for at in range(x.shape[1]):
        told[at] = True
        if np.linalg.matrix_rank(x[:, told]) > rank:
            rank += 1
        else:
            told[at] = False
    return told
