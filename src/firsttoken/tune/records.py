"""What a session leaves for people: plain data for the page, the terminal and other programs. Gains are shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from firsttoken.bench.compare import Comparison
from firsttoken.errors import ConfigError
from firsttoken.tune.disturbance import Disturbance
from firsttoken.tune.repeats import Fate
from firsttoken.tune.stats import Verdict

SCHEMA = "firsttoken.tune.result/1"


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """Better by so much: 0.03 is 3 %. An end that nothing tells is None."""

    gain: float
    low: float | None
    high: float | None
    pairs: int


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One value of one knob."""

    knob: str
    value: Any
    label: str
    what: str
    what_zh: str
    verdict: Verdict | None  # None: not measured
    numerics: bool  # whether answers may change
    kept: bool
    confirmed: bool  # by fresh launches; else by screening alone
    measured: Gain | None
    predicted: float | None
    prediction: str  # what it is made of, or why there is none
    prediction_zh: str = ""
    quality: str = ""  # what was found, where answers may change
    quality_zh: str = ""
    refused: str = ""  # why it was not tried, or not kept although it is faster
    refused_zh: str = ""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A config as it ran: medians over its runs."""

    label: str
    runs: int
    figures: dict[str, float]
    kept: bool
    baseline: bool


class DisturbedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement on which more than the settings acted."""

    number: int
    label: str  # of its config
    what: list[Disturbance]
    fate: Fate


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """A finished session."""

    schema: str = SCHEMA
    version: str
    created: float  # seconds since 1970
    engine: str
    model: str
    machine: dict[str, Any]
    workload: list[tuple[str, str]]  # titles, English and Chinese
    objective: str
    slo: dict[str, float]
    budget: float  # seconds
    spent: float
    runs: int  # measurements, the probe and what was measured again included
    noise: float  # standard deviation of what two runs of the same settings differ by
    least: float  # gain from which a knob is kept
    best_left: float  # the largest gain that the data leave possible for any value tried
    baseline: dict[str, Any]
    baseline_command: str
    kept: dict[str, Any]  # the baseline's settings with what helps
    command: str
    config: str  # the text of the config file
    config_name: str
    changed: list[str]  # labels of what is kept
    why: str  # why nothing is kept, or why something is that was not shown by itself
    why_zh: str
    fresh: Gain | None  # of all that is kept, from runs that decided nothing
    comparison: Comparison | None  # the same runs, every figure
    rows: list[Row]
    failed: list[tuple[str, str]]  # combinations, with their reasons
    points: list[Point]
    predictions_right: int  # of those that were made: gain, loss or neither, as measured
    predictions_made: int
    prediction_error: float  # mean absolute, a share
    disturbed: list[DisturbedRun] = []
    unlike: int = 0  # pairs or blocks in which quiet and disturbed runs could not be compared
    client_limited: int = 0  # runs that count in which the benchmark's client was the limit


def save(path: Path, tuned: Tuned) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(tuned), indent=1) + b"\n")


def load(path: Path) -> Tuned:
    """Raises ConfigError in one sentence."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Tuned)
    except FileNotFoundError:
        raise ConfigError(
            f"{path.parent} holds no finished session: add --resume to the command that began it."
        ) from None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path} cannot be read as a session's result: {error}.") from None
