"""Servers that exist as figures alone: planted effects, and noise of a run, of a launch and of the machine's drift."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from firsttoken.tune.arms import Arm, Candidate, Settings
from firsttoken.tune.disturbance import Disturbance
from firsttoken.tune.journal import Journal, Plan
from firsttoken.tune.lab import Event, Judge, Lab, Run
from firsttoken.tune.quality import Quality
from firsttoken.tune.session import Outcome, Session

RUN, LAUNCH, DRIFT = 0.007, 0.01, 0.03
_HOURS = 60  # runs over which the machine's drift forgets where it was

Effect = Callable[[Settings], float]
"""Settings to their true gain, a logarithm."""


class Machine:
    """Measures a figure of which lower is better."""

    def __init__(
        self,
        effect: Effect,
        seed: int,
        fails: Callable[[Settings], str] = lambda settings: "",
        *,
        seconds: Callable[[Settings], float] = lambda settings: 60.0,
        noisier: float = 1.0,
        others: Callable[[int], float] = lambda number: 0.0,
    ) -> None:
        """`noisier`: times the usual noise. `others`: cores that other programs take during a measurement."""
        self._effect, self._fails, self._seconds, self._noisier = effect, fails, seconds, noisier
        self._others = others
        self._draw = random.Random(seed)
        self._drift = self._draw.gauss(0, DRIFT)
        self.asked: list[Settings] = []

    def __call__(self, settings: Settings, *, number: int, seed: int, limit: float | None) -> Run:
        self.asked.append(settings)
        keep = math.exp(-1 / _HOURS)
        self._drift = keep * self._drift + math.sqrt(1 - keep * keep) * self._draw.gauss(0, DRIFT)
        noise = self._draw.gauss(0, RUN) + self._draw.gauss(0, LAUNCH) + self._drift
        noise *= self._noisier
        cores = self._others(number)
        disturbed = [Disturbance("cpu", f"other programs used {cores} of 2 cores", "")] if cores else []
        failure = self._fails(settings)
        if failure:
            return Run(value=None, seconds=20.0, failure=failure, disturbed=disturbed)
        slower = math.exp(noise - self._effect(settings) + 0.4 * cores)
        return Run(value=0.004 * slower, seconds=self._seconds(settings), disturbed=disturbed)


GOOD = Quality(passed=True, text="the same")


def plan(seed: int = 1, **changed: object) -> Plan:
    fields: dict[str, object] = {
        "version": "0",
        "engine": "e",
        "command": "c",
        "model": "m",
        "workload": {},
        "objective": "tpot",
    }
    fields |= {"slo": {}, "slo_share": 0.9, "baseline": {}, "knobs": {}, "budget": 1.0, "seed": seed}
    return Plan(**(fields | changed))  # type: ignore[arg-type]  # fields by name


def session(
    candidates: Sequence[Candidate],
    effect: Effect,
    seed: int,
    *,
    fails: Callable[[Settings], str] = lambda settings: "",
    judge: Judge = lambda baseline, settings: GOOD,
    hours: float = 3.0,
    tell: Callable[[Event], None] = lambda event: None,
    baseline: Mapping[str, int] | None = None,
    seconds: Callable[[Settings], float] = lambda settings: 60.0,
    noisier: float = 1.0,
    others: Callable[[int], float] = lambda number: 0.0,
) -> Outcome:
    """A whole session; a run takes a minute unless `seconds` says otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.jsonl", plan(seed), resume=False)
        lab = Lab(
            journal,
            Machine(effect, seed, fails, seconds=seconds, noisier=noisier, others=others),
            judge,
            baseline=baseline or {},
            lower_is_better=True,
            budget=hours * 3600,
            seed=seed,
            tell=tell,
        )
        try:
            return Session(lab, candidates, seed=seed).run()
        finally:
            journal.close()


KNOBS: dict[str, list[int]] = {
    "budget": [1024, 4096],
    "block": [32],
    "workers": [2],
    "graphs": [8, 64],
    "kv": [8],
    "threads": [4],
}
CANDIDATES = [Candidate(Arm(knob, value), numerics=knob == "kv") for knob, values in KNOBS.items() for value in values]


def no_effect(settings: Settings) -> float:
    return 0.0


def claimed(outcome: Outcome) -> list[str]:
    return [arm.label for arm, claim in outcome.claims.items() if claim.verdict in ("helps", "hurts")]
