"""What a run tells while it goes on, for whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass

from firsttoken.bench.records import ScenarioResult


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for the user: what is being done, or what went wrong with a server's start."""

    text: str


@dataclass(frozen=True, slots=True)
class ScenarioStarted:
    name: str
    title: str
    load: str
    planned: int | None  # measured dialogues; None under a duration
    number: int  # from 1
    of: int


@dataclass(frozen=True, slots=True)
class Progress:
    """About five times a second while a scenario runs."""

    name: str
    phase: str  # "warm-up" or "measured"
    elapsed: float  # seconds since the phase began
    finished: int
    failed: int
    planned: int | None  # requests of this phase, every turn of its dialogues; None under a duration
    output_tokens: int  # of finished requests
    ttft: float | None  # median of finished requests, seconds


@dataclass(frozen=True, slots=True)
class ScenarioFinished:
    """Also for scenarios that a resumed run took from disk (`resumed`)."""

    result: ScenarioResult
    resumed: bool = False


Event = Note | ScenarioStarted | Progress | ScenarioFinished
