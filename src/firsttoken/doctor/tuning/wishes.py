"""What is to be changed: what the user asks for, or what doctor would mend."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttoken.doctor.checks.processor import check_governor
from firsttoken.doctor.tuning.card_knobs import FREE, ClockLock, Persistence, PowerLimit
from firsttoken.doctor.tuning.governor_knob import governors
from firsttoken.doctor.tuning.knob import Knob
from firsttoken.errors import ConfigError
from firsttoken.machine.card_state import card_count
from firsttoken.machine.processor import Processor


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user named. Where it is nothing, doctor proposes."""

    persistence: bool | None = None
    power_limit: str | None = None  # watts, or "default"
    clocks: str | None = None  # "1980", "1200-1980", "free"
    governor: str | None = None
    cards: tuple[int, ...] = ()  # of these alone

    @property
    def any(self) -> bool:
        return any(value is not None for value in (self.persistence, self.power_limit, self.clocks, self.governor))


@dataclass(frozen=True, slots=True)
class Change:
    """One setting from what it is to what it shall be."""

    knob: Knob
    before: str
    after: str


class Settings:
    """The settings of this machine. `nvml` is the started module pynvml or a stand-in, None where there is none."""

    def __init__(self, nvml: Any | None, is_root: bool, root: Path = Path("/")) -> None:
        self._nvml, self._is_root, self._root = nvml, is_root, root
        self.cards = 0 if nvml is None else card_count(nvml)

    def find(self, kind: str, target: str) -> Knob | None:
        """The knob that a journal names, None where it is gone."""
        everything: list[Knob] = [*governors(self._root)]
        for card in range(self.cards):
            with suppress(OSError):  # a card that cannot be opened must not keep the others from being put back
                everything += self.of_card(card)
        return next((knob for knob in everything if (knob.kind, knob.target) == (kind, target)), None)

    def of_card(self, index: int) -> tuple[Persistence, PowerLimit, ClockLock]:
        """In the order in which they must be set: without persistence a card forgets the others. Raises OSError."""
        which = (self._nvml, index, self._is_root)
        return Persistence(*which), PowerLimit(*which), ClockLock(*which)

    def plan(self, wishes: Wishes, processor: Processor) -> list[Change]:
        """What differs from now, in the order in which it must be set. Raises ConfigError, in a sentence, for a value
        that the machine does not allow and for a card that is not there."""
        missing = [index for index in wishes.cards if not 0 <= index < self.cards]
        if missing:
            raise ConfigError(f"There is no card {missing[0]} here; the driver knows {self.cards}.")
        if not self.cards and (wishes.persistence is not None or wishes.power_limit or wishes.clocks):
            raise ConfigError("There is no NVIDIA card here to change; only --governor could be.")
        wanted: list[tuple[Knob, str]] = []
        for index in wishes.cards or range(self.cards):
            try:
                wanted += self._of_card(index, wishes) if wishes.any else self._proposed(index)
            except OSError as error:
                raise ConfigError(f"Card {index} does not answer ({error}); see `firsttoken doctor`.") from None
        wanted += self._governors(wishes, processor)
        return [_change(knob, after) for knob, after in wanted if _now(knob) != after]

    def _of_card(self, index: int, wishes: Wishes) -> list[tuple[Knob, str]]:
        persistence, power, clock = self.of_card(index)
        found: list[tuple[Knob, str]] = []
        if wishes.power_limit is not None:
            found.append((power, power.default() if wishes.power_limit == "default" else wishes.power_limit))
        if wishes.clocks is not None:
            span = wishes.clocks if "-" in wishes.clocks else f"{wishes.clocks}-{wishes.clocks}"
            found.append((clock, FREE if wishes.clocks == "free" else span))
        if wishes.persistence is not None:
            return [(persistence, "on" if wishes.persistence else "off"), *found]
        return [(persistence, "on"), *found] if found and _now(persistence) is not None else found

    def _proposed(self, index: int) -> list[tuple[Knob, str]]:
        persistence, power, _ = self.of_card(index)
        found: list[tuple[Knob, str]] = []
        if _now(persistence) is not None:
            found.append((persistence, "on"))
        if (now := _now(power)) is not None and int(now) < int(default := power.default()):
            found.append((power, default))
        return found

    def _governors(self, wishes: Wishes, processor: Processor) -> list[tuple[Knob, str]]:
        if wishes.any:
            if wishes.governor is None:
                return []
            knobs = governors(self._root)
            if not knobs:
                raise ConfigError("This system does not let its CPU governor be chosen, as most virtual machines.")
            return [(knob, wishes.governor) for knob in knobs]
        if check_governor(processor).verdict not in ("warn", "bad"):
            return []
        return [(knob, "performance") for knob in governors(self._root) if knob.why_not("performance") is None]


def _now(knob: Knob) -> str | None:
    """None for what cannot be read, a card's missing sensor too."""
    try:
        return knob.read()
    except OSError:
        return None


def _change(knob: Knob, after: str) -> Change:
    try:
        reason = knob.why_not(after)
    except OSError as error:
        reason = f"the machine does not offer it ({error})"
    if reason is not None:
        raise ConfigError(f"{knob.label}: {reason}.")
    before = _now(knob)
    if before is None and not isinstance(knob, ClockLock):
        raise ConfigError(f"{knob.label}: it cannot be read, and what cannot be put back is not changed.")
    return Change(knob, before or FREE, after)


def why_no_rights(changes: Sequence[Change]) -> str | None:
    """The first reason why this user cannot make these changes."""
    return next((reason for one in changes if (reason := one.knob.why_no_rights()) is not None), None)
