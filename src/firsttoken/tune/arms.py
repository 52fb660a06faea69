"""What is tried: an arm is one knob at one value, a config is the arms that differ from the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Value = str | int | float | bool
Settings = dict[str, Value]
"""Knobs that are set, by name; a knob that is not in it is as the engine chooses."""


class Arm(NamedTuple):
    """One knob at another value than the baseline's."""

    knob: str
    value: Value

    @property
    def label(self) -> str:
        return f"{self.knob} = {shown(self.value)}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An arm that is to be tried."""

    arm: Arm
    numerics: bool = False  # whether answers may change, so that quality must be shown
    predicted: float | None = None  # gain


Config = frozenset[Arm]
"""At most one arm of each knob; empty is the baseline."""

BASELINE: Config = frozenset()


def shown(value: Value) -> str:
    """A value as config files write it."""
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def in_order(config: Iterable[Arm]) -> list[Arm]:
    """The same order in every process: sets of texts have none."""
    return sorted(config, key=lambda arm: (arm.knob, str(arm.value)))


def named(config: Config) -> str:
    """For people: "baseline", or its arms."""
    return ", ".join(arm.label for arm in in_order(config)) or "baseline"


def settings_of(baseline: Mapping[str, Value], config: Config) -> Settings:
    """The knobs of a server with this config."""
    return {**baseline, **{arm.knob: arm.value for arm in in_order(config)}}


def with_arm(config: Config, arm: Arm) -> Config:
    """The config with the arm in place of its knob's other one."""
    return frozenset(one for one in config if one.knob != arm.knob) | {arm}
