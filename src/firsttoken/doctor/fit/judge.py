"""Whether there is anything to tune: a goal may be met already, or lie beyond what physics allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from firsttoken.bench import units

Verdict = Literal["met", "tune", "physics", "unknown"]

_NEAR = 1.15  # a prediction within its own error of the floor leaves nothing to gain
_FEWER = "Fewer streams, a shorter context, fewer bits, a smaller model or a faster card would."


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to do about one figure, and why."""

    verdict: Verdict
    text: str


def judge(figure: str, floor: float | None, predicted: float | None, goal: float | None) -> Judgement:
    """One figure in seconds, its floor, and a goal where there is one."""
    if floor is None or predicted is None:
        return Judgement("unknown", f"{figure}: not predicted here; `firsttoken bench run` measures it.")
    above = predicted / floor
    if goal is None and above <= _NEAR:
        return Judgement("physics", f"{figure}: {above - 1:.0%} above the floor, so no flag helps. {_FEWER}")
    if goal is None:
        return Judgement("tune", f"{figure}: {above:.1f} times the floor, and tuning can gain no more than that.")
    if predicted <= goal:
        met = f"{units.seconds(goal)} is met as it is ({units.seconds(predicted)} expected), so leave everything alone"
        return Judgement("met", f"{figure}: {met}.")
    least = f"the floor of {units.seconds(floor)}"
    if floor > goal:
        return Judgement("physics", f"{figure}: {units.seconds(goal)} is below {least}, so no flag helps. {_FEWER}")
    between = f"{units.seconds(goal)} lies between {least} and the {units.seconds(predicted)} expected"
    return Judgement("tune", f"{figure}: {between}, so tuning may reach it.")
