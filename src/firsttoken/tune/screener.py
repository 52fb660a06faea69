"""The pairs of a session's screening: as many as the time pays for beside what must follow, and none that is wasted.

What decides here how time is spent (`lean`) claims nothing; claims are made once, of all pairs together.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence

from firsttoken.bench.statistics import MINIMUM_PAIRS
from firsttoken.tune.arms import BASELINE, Arm, Candidate, Config, named
from firsttoken.tune.confirm import least_seconds
from firsttoken.tune.lab import Lab, Said, Stage
from firsttoken.tune.screening import Measured, Screening, fit, lean, plan_pairs
from firsttoken.tune.stats import MUCH, Verdict, verdict

FINALISTS = 4  # arms that are confirmed together at most
_NOISE_PAIRS, _LEAST_NOISE_PAIRS = 3, 2
_SHORT = 60  # runs; with fewer left after the first pair, a session saves where it can
_SPARE, _LEAST_SPARE = 7, 3  # pairs beyond the number of arms, which tell the noise
_LATER_SPARE = 1  # where earlier pairs have told the noise
_EACH, _LEAST_EACH = 6, 4  # pairs in which each arm is seen at least
_SLOW = 1.3  # times what runs without an arm take
_PLAIN = 6.0  # times a pair's noise: a loss so large needs no sign flips, for which fewer than six pairs are too few


class Screener:
    """Measures pairs of a session's candidates."""

    def __init__(
        self, lab: Lab, candidates: Mapping[Arm, Candidate], *, seed: int, margin: float, alpha: float
    ) -> None:
        self._lab, self._candidates = lab, candidates
        self._seed, self._margin, self._alpha = seed, margin, alpha
        self._measured: list[Measured] = []
        self._unlike: list[Measured] = []  # that tell of disturbances, as far as these are an exception
        self.arms: list[Arm] = []  # that are screened
        self.dropped: dict[Arm, int] = {}  # that plainly cost gain and time, and after how many pairs each was left

    def run(self) -> None:
        """Noise, then the planned pairs."""
        self._noise()
        self.arms = self._affordable(list(self._candidates), _LEAST_SPARE)
        pairs = _pairs_for(self.arms, _SPARE, _EACH)
        if 2 * pairs > self._lab.runs_left / 2:
            pairs = min(_pairs_for(self.arms, _LEAST_SPARE, _LEAST_EACH), self._lab.runs_left // 2)
        self._screen(self.arms, pairs, self._seed)

    def widen(self) -> bool:
        """Screens what was left out before, as far as there is time now; False where that is nothing."""
        arms = [arm for arm in self._candidates if arm not in self.arms]
        arms = self._affordable([arm for arm in arms if not self._candidates[arm].numerics], _LATER_SPARE)
        pairs = _pairs_for(arms, _LATER_SPARE, _LEAST_EACH)
        if not arms or 2 * pairs > self._lab.runs_left:
            return False
        self.arms += arms
        self._screen(arms, pairs, self._seed + len(self.arms))
        return True

    def _screen(self, arms: Sequence[Arm], pairs: int, seed: int) -> None:
        knobs = len({arm.knob for arm in arms})
        counted = [_count(len(arms), "value"), _count(knobs, "knob"), _count(pairs, "pair")]
        self._lab.tell(Stage("screening", "{} of {} in {}".format(*counted)))
        for number, (first, second) in enumerate(plan_pairs(arms, pairs, seed) if pairs else [], 1):
            if self._is_time_to_confirm():
                break
            self._pair(first, second, after=2 * (pairs - number) * self._lab.run_seconds)

    def go_on(self, without: Collection[Arm]) -> None:
        """Further pairs, in the time that is left, of the arms that may still gain much."""
        lab, batch = self._lab, 0
        while True:
            found = self.found()
            open_ = [
                arm
                for arm, one in found.arms.items()
                if one.most > MUCH and arm not in without and arm not in self.dropped
            ]
            pairs = _pairs_for(open_, 1, 2)
            if not open_ or lab.runs_left < 2 * pairs:
                return
            batch += 1
            lab.tell(Stage("screening", f"{pairs} more pairs of what may still gain: {named(frozenset(open_))}"))
            for first, second in plan_pairs(open_, pairs, self._seed + batch):
                if self._lab.left < 2 * self._lab.run_seconds:
                    return
                self._pair(first, second)

    def found(self) -> Screening:
        lost = self._lab.failed_arms(self.arms)
        return fit(self._comparable(), [arm for arm in self.arms if arm not in lost], self._alpha)

    def verdict(self, arm: Arm, found: Screening, least: float) -> Verdict:
        """Screening may say that something hurts; that it helps must be seen again: the best of many looks better."""
        one = found.arms[arm]
        said = verdict(one, least, self._margin)
        if one.p <= one.level and one.gain <= -max(self._margin, _PLAIN * found.noise):
            return "hurts"
        return "undecided" if said == "helps" else said

    def _comparable(self) -> list[Measured]:
        return [*self._measured, *self._unlike] if self._lab.is_restless else self._measured

    # --- pairs ---

    def _noise(self) -> None:
        self._lab.tell(Stage("noise", "The baseline against itself"))
        pairs, made = _LEAST_NOISE_PAIRS, 0
        while made < pairs:
            self._gain(BASELINE, BASELINE)
            made += 1
            if made == 1 and self._lab.runs_left >= _SHORT:
                pairs = _NOISE_PAIRS

    def _pair(self, first: Config, second: Config, *, after: float = 0.0) -> None:
        lab = self._lab
        first, second = (lab.without_failures(config - frozenset(self.dropped)) for config in (first, second))
        if first == second and self.dropped:
            return  # nothing but dropped arms was in it
        if self._gain(first, second, after):
            self._drop()
            return
        for config in (first, second):
            if config in lab.failed:
                lab.find_culprits(config)

    def _gain(self, first: Config, second: Config, after: float = 0.0) -> bool:
        """Whether a pair told its gain."""
        lab, unlike = self._lab, len(self._lab.unlike)
        gain = lab.pair(first, second, after=after)
        self._unlike += lab.unlike[unlike:]
        if gain is not None:
            self._measured.append((first, second, gain))
        return gain is not None

    def _drop(self) -> None:
        """Leaves an arm whose loss is plain, where its runs take long: what is left of the time has better uses."""
        for arm, one in lean(self._comparable(), self.arms).items():
            if arm not in self.dropped and one.high < -self._margin and self._slowness(arm) >= _SLOW:
                pairs = sum((arm in first) != (arm in second) for first, second, _ in self._comparable())
                self.dropped[arm] = pairs
                self._lab.tell(Said(f"{arm.label} plainly costs, and its runs take long: no more of it"))

    def _slowness(self, arm: Arm) -> float:
        """How many times longer runs with the arm take than those without it."""
        ran = [kept for kept in self._lab.runs if kept.run.value is not None and kept.config]
        longer = [kept.run.seconds for kept in ran if arm in kept.config]
        others = [kept.run.seconds for kept in ran if arm not in kept.config]
        return statistics.median(longer) / statistics.median(others) if longer and others else 1.0

    # --- time ---

    def _affordable(self, arms: list[Arm], spare: int) -> list[Arm]:
        """Those of the arms that are screened. What is left out is what promises least for its cost.

        Values that change answers need the quality gate besides, so they must leave the time for a confirmation of
        all that may help; the others may take half of the time that is left.
        """
        left = self._lab.runs_left

        def promise(arm: Arm) -> float:
            predicted = self._candidates[arm].predicted
            return abs(predicted) if predicted is not None else self._margin

        def screening() -> int:
            return 2 * _pairs_for(arms, spare, _LEAST_EACH)

        def confirmation() -> int:
            return MINIMUM_PAIRS * (2 + min(len({arm.knob for arm in arms}), FINALISTS))

        while screening() + confirmation() > left:
            costly = [arm for arm in arms if self._candidates[arm].numerics]
            if not costly or len(arms) == 1:
                break
            arms.remove(min(costly, key=promise))
        while len(arms) > 1 and screening() > left / 2:
            arms.remove(min(arms, key=promise))
        return arms

    def _is_time_to_confirm(self) -> bool:
        """Whether what plainly helps could not be confirmed any more after another pair."""
        if len(self._comparable()) < len(self.arms) + 2:  # nothing would tell the noise
            return False
        plain = {arm: one.gain for arm, one in lean(self._comparable(), self.arms).items() if one.low > self._margin}
        best = sorted(best_of_each(plain), key=lambda arm: -plain[arm])[:FINALISTS]
        if not best or self._lab.left - 2 * self._lab.run_seconds >= least_seconds(self._lab, frozenset(best), best):
            return False
        self._lab.tell(Said(f"Screening ends: the time that is left is for {named(frozenset(best))}"))
        return True


def best_of_each(gains: Mapping[Arm, float]) -> list[Arm]:
    """The best value of each knob."""
    best: dict[str, Arm] = {}
    for arm, gain in gains.items():
        if arm.knob not in best or gain > gains[best[arm.knob]]:
            best[arm.knob] = arm
    return list(best.values())


def _pairs_for(arms: Sequence[Arm], spare: int, each: int) -> int:
    values: dict[str, int] = {}
    for arm in arms:
        values[arm.knob] = values.get(arm.knob, 0) + 1
    return max(len(arms) + spare, each * max(values.values(), default=0))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
