"""One run of a session on a real server: launched under a guard, measured by the benchmark, stopped whole."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from firsttoken.bench.events import Event, Note, Progress
from firsttoken.bench.records import RunResult, ServerIdentity
from firsttoken.bench.result_file import load_result, requests_path
from firsttoken.bench.roofline_judge import MachineCeilings, RooflineJudge
from firsttoken.bench.run import BenchSpec, Judge, Monitor, run_scenarios
from firsttoken.bench.scenario import Scenario
from firsttoken.bench.sources import monitor_for
from firsttoken.errors import FirstTokenError
from firsttoken.machine.gpu import read_gpus
from firsttoken.machine.host import read_host
from firsttoken.tune.arms import Settings
from firsttoken.tune.disturbance import Disturbance, client_was_the_limit, disturbances
from firsttoken.tune.guarded import end_leftover, guarded
from firsttoken.tune.lab import Run
from firsttoken.tune.objective import Objective, figures_of, value_of
from firsttoken.tune.probe import Probe, facts_of
from firsttoken.tune.space import Space
from firsttoken.tune.strangers import Strangers

_LEAST_SELF_TEST = 0.2  # seconds; the client's ceiling is far above what a tuned server sends


class _TooSlow(Exception):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every run has in common."""

    space: Space
    model: str
    always: str  # flags of every server
    scenarios: Callable[[ServerIdentity], Sequence[Scenario]]
    objective: Objective
    slo: Mapping[str, float]
    folder: Path
    ready_timeout: float
    request_timeout: float
    shared: int = 0  # tokens that all prompts begin with
    model_config: Path | None = None
    tell: Callable[[Event], None] = field(default=lambda event: None)


class Trials:
    """Measures settings; a server's failure is an answer."""

    def __init__(
        self,
        bench: Bench,
        monitor: Callable[[str], Monitor] = monitor_for,
        strangers: Strangers | None = None,
    ) -> None:
        """`monitor` makes one of the server at a URL."""
        self.bench, self._monitor = bench, monitor
        self._strangers = strangers or Strangers()
        self._note = bench.folder / "server.pid"
        self._ceilings = MachineCeilings("http://127.0.0.1")

    def begin(self) -> None:
        """Ends what a session that was killed left in the folder; nobody else may work in it now."""
        end_leftover(self._note)

    def __call__(self, settings: Settings, *, number: int, seed: int, limit: float | None) -> Run:
        started = time.monotonic()
        path = self.bench.folder / "runs" / f"{number:03d}.json"
        try:
            result = self._play(settings, path, seed, limit, [])
        except FirstTokenError as error:
            seconds = time.monotonic() - started
            return Run(value=None, seconds=seconds, failure=str(error), disturbed=self._until_its_end(path))
        except _TooSlow:
            text, seconds = f"it was ended after {limit:.0f} s, six times what the baseline takes", time.monotonic()
            return Run(value=None, seconds=seconds - started, failure=text, disturbed=self._until_its_end(path))
        seconds = time.monotonic() - started
        failure = _failure(result)
        value = value_of(result, self.bench.objective)
        if not failure and value is None:
            failure = f"it has no {self.bench.objective} above zero"
        attempted = sum(one.metrics.attempted for one in result.scenarios if one.metrics is not None)
        met = [(one.metrics.goodput_share or 0) * one.metrics.attempted for one in result.scenarios if one.metrics]
        return Run(
            value=None if failure else value,
            seconds=seconds,
            failure=failure,
            figures=figures_of(result),
            slo_met=round(sum(met)) if self.bench.slo else 0,
            slo_of=attempted if self.bench.slo else 0,
            result=str(path.relative_to(self.bench.folder)),
            disturbed=disturbances(result, self._strangers.found()),
            client_limited=client_was_the_limit(result),
        )

    def probe(self, settings: Settings, seed: int) -> Probe:
        """The baseline's first run, with what it tells of the work and the machine."""
        started = time.monotonic()
        gpus = read_gpus()  # before a server takes the memory
        host = read_host()
        self._ceilings.prepare()
        judge = RooflineJudge(self._ceilings.of, self.bench.model_config)
        path = self.bench.folder / "runs" / "000.json"
        try:
            result = self._play(settings, path, seed, None, [judge])
        except FirstTokenError as error:
            return Probe(seconds=time.monotonic() - started, failure=str(error))
        on_gpu = bool(gpus) and result.server.details.get("device", "cuda") != "cpu"
        return Probe(
            seconds=time.monotonic() - started,
            failure=_failure(result),
            device="cuda" if on_gpu else "cpu",
            card=gpus[0].name if on_gpu else "",
            memory_total=gpus[0].memory_total if on_gpu else host.memory_total,
            memory_free=gpus[0].memory_free if on_gpu else host.memory_available,
            cores=host.cores,
            shared=self.bench.shared,
            disturbed=disturbances(result, self._strangers.found()),
            **facts_of(result),
        )

    def _until_its_end(self, path: Path) -> list[Disturbance]:
        """What acted on a run that was broken off, by what it left on disk."""
        return disturbances(load_result(path), self._strangers.found()) if path.exists() else []

    def _play(
        self, settings: Settings, path: Path, seed: int, limit: float | None, judges: Sequence[Judge]
    ) -> RunResult:
        bench = self.bench
        for file in (path, requests_path(path)):  # of a run that was killed
            file.unlink(missing_ok=True)
        port = _free_port()
        command = bench.space.launch(bench.model, port, settings, bench.always)
        url = f"http://127.0.0.1:{port}"
        spec = BenchSpec(
            url=url,
            scenarios=bench.scenarios,
            out=path,
            launch=guarded(command, self._note),
            ready_timeout=bench.ready_timeout,
            request_timeout=bench.request_timeout,
            seed=seed,
            slo=dict(bench.slo),
            self_test_seconds=_LEAST_SELF_TEST,
            command=[command],
        )
        self._strangers.look()
        return run_scenarios(spec, _Watch(bench.tell, limit, command), monitor=self._monitor(url), judges=judges)


class _Watch:
    """Hands a run's events on, and ends the run at its limit."""

    def __init__(self, tell: Callable[[Event], None], limit: float | None, command: str) -> None:
        self._tell, self._command = tell, command
        self._end = time.monotonic() + limit if limit is not None else None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Note) and event.text.startswith("starting: "):
            event = Note(f"starting: {self._command}")  # without its guard
        self._tell(event)
        if isinstance(event, Progress) and self._end is not None and time.monotonic() > self._end:
            raise _TooSlow


def _failure(result: RunResult) -> str:
    """Why a run's figures do not count; empty where they do."""
    for scenario in result.scenarios:
        metrics = scenario.metrics
        if metrics is None or not metrics.succeeded:
            return "no request was answered"
        if metrics.failed:
            error = next((r.error for r in scenario.records if r.error and r.phase == "measured"), "")
            return f"{metrics.failed} of {metrics.attempted} requests failed, the first with: {error}"
    return "" if result.scenarios else "nothing was measured"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
