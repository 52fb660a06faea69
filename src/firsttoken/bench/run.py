"""One run of `firsttoken bench run`: find or start the server, play every scenario, check it, keep it on disk."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from firsttoken.bench.energy import clocks_judge
from firsttoken.bench.events import Event, Note, Progress, ScenarioFinished, ScenarioStarted
from firsttoken.bench.http_client import Address
from firsttoken.bench.job import Target
from firsttoken.bench.key_hiding import hide_keys
from firsttoken.bench.launch import LaunchedServer
from firsttoken.bench.machine_facts import machine_facts
from firsttoken.bench.metrics import measure, measure_groups
from firsttoken.bench.player import Player
from firsttoken.bench.prompt_form import PromptForm, learn_form
from firsttoken.bench.prompts import needs_form
from firsttoken.bench.records import (
    Check,
    LoadSpec,
    RequestRecord,
    RunResult,
    Sample,
    ScenarioResult,
    ServerIdentity,
)
from firsttoken.bench.result_file import RecordWriter, load_result, requests_path, save_result
from firsttoken.bench.scenario import Endpoint, Scenario
from firsttoken.bench.self_check import check_scenario
from firsttoken.bench.served import Served
from firsttoken.bench.workers import ClientPool, allowed_cores, client_cores, processes_for
from firsttoken.errors import ConfigError
from firsttoken.version import __version__

__all__ = [
    "BenchSpec",
    "Event",
    "Judge",
    "Monitor",
    "Note",
    "Progress",
    "ScenarioFinished",
    "ScenarioStarted",
    "run_scenarios",
]


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
    self_test_seconds: float = 1.0  # in which the client's own ceiling is measured
    command: Sequence[str] = ()  # for the record


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
    before: Sequence[Callable[[RunResult], None]] = (),
) -> RunResult:
    """Plays every scenario of `spec` and returns the result, which also lies at `spec.out` after each scenario.

    `before` is told of the run once its server is known. Ctrl-C ends the run early: what was measured is kept, the
    broken-off scenario with `complete=False`, and KeyboardInterrupt goes on to the caller after the result is on disk.
    Raises ConfigError and Unavailable where the server cannot be reached or started.
    """
    with _terminated_as_interrupted(), ExitStack() as stack:
        run = _Run(spec, on_event, monitor, judges, stack)
        run.open_server()
        for tell in before:
            tell(run.result)
        run.play_all()
        return run.result


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: results are kept and a launched server does not stay behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Run:
    """The parts of a run while it goes on."""

    def __init__(
        self,
        spec: BenchSpec,
        on_event: Callable[[Event], None],
        monitor: Monitor | None,
        judges: Sequence[Judge],
        stack: ExitStack,
    ) -> None:
        self._spec = spec
        self._tell = on_event
        self._monitor = monitor
        self._judges = [*judges, clocks_judge(monitor.samples)] if monitor is not None else list(judges)
        self._stack = stack
        self._address = Address.parse(spec.url)
        self._headers = {"Authorization": f"Bearer {spec.api_key}"} if spec.api_key else {}
        self._served = stack.enter_context(
            Served(self._address, headers=self._headers, timeout=spec.request_timeout, verify_tls=spec.verify_tls)
        )
        self._launched: LaunchedServer | None = None
        self._takes_ignore_eos = True
        self._earlier_samples: list[Sample] = []
        self._forms: dict[Endpoint, PromptForm] = {}
        self.result = RunResult(
            created=time.time(),
            version=__version__,
            command=list(spec.command),
            url=self._address.root,
            machine=machine_facts(self._address.root),
            slo=dict(spec.slo),
            seed=spec.seed if spec.seed is not None else random.SystemRandom().getrandbits(63),
        )

    # --- the server ---

    def open_server(self) -> None:
        """Starts it where asked for, and learns who it is."""
        spec = self._spec
        if spec.launch is not None:
            if self._served.answers():
                raise ConfigError(
                    f"something already serves at {self._address.root}: stop it, or leave --launch out to measure it"
                )
            self._tell(Note(f"starting: {hide_keys(spec.launch)}"))
            self._launched = self._stack.enter_context(LaunchedServer(spec.launch, self._log_path()))
            self.result.ready_seconds = self._launched.wait_ready(self._served.is_ready, spec.ready_timeout)
            self._tell(Note(f"ready {self.result.ready_seconds:.2f} s after the launch"))
        self.result.server = self._served.identify(spec.model)
        self.result.server.command = hide_keys(spec.launch or "")
        self.result.model = self.result.server.model
        self._takes_ignore_eos = not self._served.refuses({"ignore_eos": True})
        if not self._takes_ignore_eos:
            self._tell(Note("the server refuses ignore_eos, so it is left out and answers may end early"))

    def _log_path(self) -> Path:
        spec = self._spec
        if spec.launch_log is not None:
            return spec.launch_log
        if spec.out is not None:
            return spec.out.with_name(spec.out.stem + ".server.log")
        handle, name = tempfile.mkstemp(prefix="firsttoken-server-", suffix=".log")
        os.close(handle)
        return Path(name)

    # --- the scenarios ---

    def play_all(self) -> None:
        spec, result = self._spec, self.result
        chosen = spec.scenarios(result.server) if callable(spec.scenarios) else spec.scenarios
        points = [(scenario, load) for scenario in chosen for load in scenario.loads]
        names = [_point_name(scenario, load) for scenario, load in points]
        if len(set(names)) < len(names):
            raise ConfigError("two scenarios or points of a sweep have the same name: rename one")
        done = self._resume({name: load for (_, load), name in zip(points, names, strict=True)})
        writer = self._writer([record for scenario in done.values() for record in scenario.records])
        self._start_clients([load for (_, load), name in zip(points, names, strict=True) if name not in done])
        if self._monitor is not None:
            self._monitor.start(self._launched.pid if self._launched is not None else None)
            self._stack.callback(self._monitor.stop)
        for number, ((scenario, load), name) in enumerate(zip(points, names, strict=True), 1):
            if name in done:
                result.scenarios.append(done[name])
                self._tell(ScenarioFinished(done[name], resumed=True))
                continue
            self._tell(ScenarioStarted(name, scenario.title, load.label, load.requests, number, len(points)))
            self._play(name, scenario, load, writer)
        if self._monitor is not None:
            self._monitor.stop()  # its last sample tells of the last scenario's end, so it is kept as well
        self._keep()

    def _resume(self, wanted: Mapping[str, LoadSpec]) -> dict[str, ScenarioResult]:
        """Complete scenarios of an earlier run at `out`, unless they are wanted under another load now.

        Those that are not wanted stay in the result.
        """
        out = self._spec.out
        if out is None or not out.exists():
            return {}
        earlier = load_result(out)
        mine = (self.result.model, self.result.url)
        if (earlier.model, earlier.url) != mine:
            raise ConfigError(
                f"{out} holds a run of {earlier.model} at {earlier.url}: choose another --out, or remove that file"
            )
        self.result.created = earlier.created
        self._earlier_samples = earlier.samples
        done = {
            scenario.name: scenario
            for scenario in earlier.scenarios
            if scenario.complete and wanted.get(scenario.name, scenario.load) == scenario.load
        }
        self.result.scenarios += [scenario for name, scenario in done.items() if name not in wanted]
        if self.result.ready_seconds is None:
            self.result.ready_seconds = earlier.ready_seconds
        return done

    def _writer(self, keep: list[RequestRecord]) -> RecordWriter | None:
        if self._spec.out is None:
            return None
        return self._stack.enter_context(RecordWriter(requests_path(self._spec.out), keep))

    def _start_clients(self, loads: Sequence[LoadSpec]) -> None:
        most = max((_in_flight(load) for load in loads), default=1)
        cores = allowed_cores()
        count = self._spec.processes or processes_for(most, len(cores) or os.cpu_count() or 1)
        self._pool = self._stack.enter_context(ClientPool(count, client_cores(count, cores)))
        self.result.client_processes = count
        if loads:
            self.result.client_ceiling = self._pool.ceiling(self._spec.self_test_seconds)
            processes = "1 process" if count == 1 else f"{count} processes"
            self._tell(Note(f"this client takes {self.result.client_ceiling:,.0f} chunks/s over {processes} at most"))

    def _play(self, name: str, scenario: Scenario, load: LoadSpec, writer: RecordWriter | None) -> None:
        result = ScenarioResult(
            name=name,
            scenario=scenario.name,
            title=scenario.title,
            title_zh=scenario.title_zh,
            sweep=scenario.sweep,
            load=load,
            cache=scenario.cache,
        )
        self.result.scenarios.append(result)
        player = Player(
            self._pool, self._target(), self._form(scenario), f"{self.result.seed}/{name}", writer, self._tell
        )
        self._keep()  # so that a crash leaves a file which names the scenario that its raw records belong to
        try:
            player.play(scenario, load, result)
            result.complete = True
        finally:
            self._judge(result, scenario, player)
            self._keep()
        if self._launched is not None:
            self._launched.check()
        self._tell(ScenarioFinished(result))

    def _judge(self, result: ScenarioResult, scenario: Scenario, player: Player) -> None:
        slo = self._spec.slo
        result.metrics = measure(result.records, slo)
        result.group_metrics = measure_groups(result.records, slo)
        ceiling = self.result.client_ceiling
        if ceiling is not None:
            ceiling = ceiling * player.processes / self._pool.size
        checks = check_scenario(result, cache=scenario.cache, client_ceiling=ceiling, late=player.late)
        for judge in self._judges:
            checks += [check for check in judge(result, self.result) if check not in checks]
        result.checks = checks

    def _target(self) -> Target:
        spec = self._spec
        return Target(
            url=self._address.root,
            model=self.result.model,
            headers=self._headers,
            timeout=spec.request_timeout,
            verify_tls=spec.verify_tls,
            ignore_eos=self._takes_ignore_eos,
            body={name: msgspec.Raw(msgspec.json.encode(value)) for name, value in spec.extra_body.items()},
            tokenizer=str(spec.tokenizer) if spec.tokenizer is not None else "",
        )

    def _form(self, scenario: Scenario) -> PromptForm | None:
        if not needs_form(scenario.workload):
            return None
        if scenario.endpoint not in self._forms:
            self._forms[scenario.endpoint] = learn_form(self._served, scenario.endpoint)
        return self._forms[scenario.endpoint]

    def _keep(self) -> None:
        if self._monitor is not None:
            self.result.samples = [*self._earlier_samples, *self._monitor.samples()]
            self.result.absent = self._monitor.absent()
        if self._spec.out is not None:
            save_result(self._spec.out, self.result)


def _point_name(scenario: Scenario, load: LoadSpec) -> str:
    if len(scenario.loads) == 1:
        return scenario.name
    value = load.concurrency if load.concurrency is not None else load.rate
    return f"{scenario.name}@{value:g}" if value is not None else f"{scenario.name}@{load.label}"


def _in_flight(load: LoadSpec) -> int:
    """Requests that may be in flight at once; an open loop's are taken for those of four seconds."""
    if load.concurrency is not None:
        return load.concurrency + load.held
    if load.arrivals == "trace":
        return len(load.trace)
    return max(1, round(4 * (load.rate or 1)))
