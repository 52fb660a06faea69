"""Which disturbed runs are measured again, and what became of each.

A run is repeated alone, at once and with the same prompts: so the order that was drawn stays, its partner is as near
in time as it can be, and a pair costs three measurements instead of four. Its last measurement stays, whatever the
others said; to take the best of them would choose by the figure. Where that leaves a quiet and a disturbed run in one
pair, the whole pair is measured once more, and if it is still so, the two are not compared: one such pair among many
quiet ones is so far out that a fit finds effects where there are none. Where they are no exception, their scatter is
seen as noise, and they are all that there is; then all runs are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from firsttoken.tune.arms import Config
from firsttoken.tune.disturbance import Disturbance

TRIES = 3  # measurements of one run
IN_A_ROW = 4  # disturbed measurements from which a machine is not quiet; the next quiet one makes it so again
SHARE = 0.25  # of the budget that measurements which are made again may take
RESTLESS = 0.25  # share of the runs that stay disturbed from which they are no exception

Fate = Literal["again", "tried enough", "never quiet", "no time"]
"""Of a disturbed measurement: another one was made in its place, or why it stays all the same."""


@dataclass(frozen=True, slots=True)
class Disturbed:
    """One measurement that was disturbed."""

    number: int
    config: Config
    what: Sequence[Disturbance]
    fate: Fate


class Repeats:
    """Decides by what was measured until then, so that a resumed session decides alike."""

    def __init__(self, budget: float) -> None:
        self._budget = budget  # seconds
        self._in_a_row = 0
        self.log: list[Disturbed] = []
        self.seconds = 0.0  # in measurements that were made again

    def judge(
        self, number: int, config: Config, what: Sequence[Disturbance], *, seconds: float, tries: int, left: float
    ) -> Fate | None:
        """None for a quiet measurement. `tries`: measurements of this run so far; `left`: seconds for another one."""
        self._in_a_row = self._in_a_row + 1 if what else 0
        if not what:
            return None
        fate: Fate = "again"
        if tries >= TRIES:
            fate = "tried enough"
        elif self._in_a_row >= IN_A_ROW:
            fate = "never quiet"
        elif not self.may_take(seconds, left):
            fate = "no time"
        self.log.append(Disturbed(number, config, what, fate))
        return fate

    def may_take(self, seconds: float, left: float) -> bool:
        """Whether what took so long may be measured again; if so, it is counted as repeated."""
        if seconds > left or self.seconds + seconds > SHARE * self._budget:
            return False
        self.seconds += seconds
        return True


_LIVE: dict[Fate, str] = {
    "again": "it is measured again",
    "tried enough": f"it stays, since it was measured {TRIES} times",
    "never quiet": "it stays, since the machine does not become quiet",
    "no time": "it stays, since no time is left for repeats",
}


def sentence(one: Disturbed) -> str:
    """What a person is told at once."""
    return f"Run {one.number} was disturbed ({'; '.join(cause.text for cause in one.what)}): {_LIVE[one.fate]}."
