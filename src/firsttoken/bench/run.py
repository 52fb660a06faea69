"""One run of `firsttoken bench run`: find or start the server, play every scenario, check it, keep it on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from firsttoken.bench.records import Check, RunResult, Sample, ScenarioResult, ServerIdentity
from firsttoken.bench.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSpec:
    """Everything a run needs."""

    url: str  # "http://127.0.0.1:8000", with or without "/v1"
    # what to play, or what chooses it once the server is known (its context length, say)
    scenarios: Sequence[Scenario] | Callable[[ServerIdentity], Sequence[Scenario]]
    model: str | None = None  # None: the server's only or first model
    out: Path | None = None  # run.json; run.requests.jsonl lies beside it; an earlier run there is resumed
    api_key: str | None = field(default=None, repr=False)
    launch: str | None = None  # a command that serves at `url`
    launch_log: Path | None = None  # None: beside `out`, else a temporary file
    ready_timeout: float = 1800.0  # seconds from launch to ready
    request_timeout: float = 600.0  # seconds without a byte
    processes: int | None = None  # client processes; None: by load and cores
    seed: int | None = None  # None: from the operating system, so that no run repeats another's prompts
    slo: dict[str, float] = field(default_factory=dict)  # seconds by metric: ttft, tpot, e2e, gap
    tokenizer: Path | None = None  # tokenizer.json that counts a chunk's tokens where the server does not
    verify_tls: bool = True
    extra_body: dict[str, object] = field(default_factory=dict)  # joined into every request
    command: Sequence[str] = ()  # for the record


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for the user: what is being done, or what went wrong with a server's start."""

    text: str


@dataclass(frozen=True, slots=True)
class ScenarioStarted:
    name: str
    title: str
    load: str
    planned: int | None  # measured requests; None under a duration
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
    planned: int | None
    output_tokens: int  # of finished requests
    ttft: float | None  # median of finished requests, seconds


@dataclass(frozen=True, slots=True)
class ScenarioFinished:
    """Also for scenarios that a resumed run took from disk (`resumed`)."""

    result: ScenarioResult
    resumed: bool = False


Event = Note | ScenarioStarted | Progress | ScenarioFinished


class Monitor(Protocol):
    """Samples GPU and host from `start` to `stop`, in a thread of its own."""

    def start(self, server_pid: int | None) -> None: ...

    def stop(self) -> None: ...

    def samples(self) -> list[Sample]: ...

    def absent(self) -> list[str]: ...


Judge = Callable[[ScenarioResult, RunResult], list[Check]]
"""A further check of a finished scenario, such as the roofline's: it may fill in `shares`; its verdicts join in."""


def run_scenarios(
    spec: BenchSpec,
    on_event: Callable[[Event], None],
    *,
    monitor: Monitor | None = None,
    judges: Sequence[Judge] = (),
) -> RunResult:
    """Plays every scenario of `spec` and returns the result, which also lies at `spec.out` after each scenario.

    Ctrl-C ends the run early: what was measured is kept, the broken-off scenario with `complete=False`, and
    KeyboardInterrupt goes on to the caller after the result is on disk. Raises ConfigError and Unavailable where the
    server cannot be reached or started.
    """
    raise NotImplementedError
