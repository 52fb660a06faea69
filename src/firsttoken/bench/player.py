"""Plays one scenario at one load on the client processes: warm-up first, then what is measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import msgspec

from firsttoken.bench.arrivals import arrival_times
from firsttoken.bench.events import Progress
from firsttoken.bench.job import Arrival, Job, Target
from firsttoken.bench.metrics import output_tokens, ttft
from firsttoken.bench.prompt_form import PromptForm
from firsttoken.bench.prompts import PromptSource, trimmed, turns_of
from firsttoken.bench.records import LoadSpec, Phase, RequestRecord, ScenarioResult, decode_record
from firsttoken.bench.result_file import RecordWriter
from firsttoken.bench.scenario import Scenario
from firsttoken.bench.workers import ClientPool
from firsttoken.errors import ConfigError

_WARM_UP_SLOTS = 16  # in flight at most during an open loop's warm-up


class Player:
    """One scenario's run. `late` and `processes` tell about the client afterwards."""

    def __init__(
        self,
        pool: ClientPool,
        target: Target,
        form: PromptForm | None,
        seed: str,
        writer: RecordWriter | None,
        tell: Callable[[Progress], None],
    ) -> None:
        self._pool = pool
        self._target = target
        self._form = form
        self._seed = seed
        self._writer = writer
        self._tell = tell
        self.late = 0.0  # seconds by which a client's event loop was late at worst, while measuring
        self.processes = 1

    def play(self, scenario: Scenario, load: LoadSpec, result: ScenarioResult) -> None:
        """Fills `result` in as records come; on KeyboardInterrupt it holds those until then."""
        requests = len(load.trace) if load.arrivals == "trace" else load.requests
        scenario = msgspec.structs.replace(scenario, workload=trimmed(scenario.workload, requests, load.warm_up))
        if load.warm_up:
            slots = load.concurrency or min(load.warm_up, _WARM_UP_SLOTS)
            closed = LoadSpec(concurrency=slots, requests=load.warm_up)
            self._phase("warm-up", closed, scenario, result)
        result.started_wall = time.time()
        result.started = time.monotonic()
        try:
            self._phase("measured", load, scenario, result)
        finally:
            result.ended = time.monotonic()

    def _phase(self, phase: Phase, load: LoadSpec, scenario: Scenario, result: ScenarioResult) -> None:
        jobs = self._jobs(phase, load, scenario, result.name)
        numbers = [number for job in jobs for number in [*job.numbers, *job.held, *(a.number for a in job.arrivals)]]
        planned = sum(turns_of(scenario.workload, number) for number in numbers) or None
        count = _Count()

        def on_record(line: bytes) -> None:
            record = decode_record(line)
            result.records.append(record)
            if self._writer is not None:
                self._writer.append(record)
            count.add(record)

        def on_tick(start: float) -> None:
            elapsed = max(time.monotonic() - start, 0.0)
            self._tell(
                Progress(
                    name=result.name,
                    phase=phase,
                    elapsed=elapsed,
                    finished=count.finished,
                    failed=count.failed,
                    planned=planned,
                    output_tokens=count.tokens,
                    ttft=statistics.median(count.waits) if count.waits else None,
                )
            )

        played = self._pool.play(jobs, on_record, on_tick)
        on_tick(played.started)
        self.late = played.late
        self.processes = len(jobs)

    def _jobs(self, phase: Phase, load: LoadSpec, scenario: Scenario, name: str) -> list[Job]:
        """The load's share of each process: slots and numbers, or arrivals, dealt out in turn."""
        source = PromptSource(scenario.workload, self._form, self._seed)
        first = source.warm_up_first(load.requests or 0) if phase == "warm-up" else 0
        if load.open:
            offsets = arrival_times(load, _number(self._seed))
            arrivals = [Arrival(first + place, at) for place, at in enumerate(offsets)]
            if not arrivals:
                raise ConfigError(f"scenario {name!r} sends nothing: its schedule is empty")
            count = min(self._pool.size, len(arrivals))
            return [self._job(phase, scenario, name, place, arrivals=arrivals[place::count]) for place in range(count)]
        slots = load.concurrency or 1
        if load.requests is None and load.duration is None:
            raise ConfigError(f"scenario {name!r} needs a number of requests or a duration")
        if load.requests is not None:
            slots = min(slots, load.requests - load.held)
        count = min(self._pool.size, slots)
        jobs: list[Job] = []
        for place in range(count):
            streams = list(range(place, slots, count))
            end = first + (load.requests or 0)
            numbers = list(range(first + place, end - load.held, count))
            held = list(range(end - load.held, end)) if place == 0 else []
            job = self._job(
                phase, scenario, name, place, streams=streams, numbers=numbers, first=first + place, step=count,
                duration=load.duration, held=held, tells_after=load.held_until if load.held else 0,
            )  # fmt: skip
            jobs.append(job)
        return jobs

    def _job(
        self,
        phase: Phase,
        scenario: Scenario,
        name: str,
        place: int,
        *,
        arrivals: list[Arrival] | None = None,
        streams: list[int] | None = None,
        numbers: list[int] | None = None,
        first: int = 0,
        step: int = 1,
        duration: float | None = None,
        held: list[int] | None = None,
        tells_after: int = 0,
    ) -> Job:
        return Job(
            target=self._target,
            scenario=name,
            phase=phase,
            workload=scenario.workload,
            form=self._form,
            seed=self._seed,
            client=place,
            arrivals=arrivals or [],
            streams=streams or [],
            numbers=numbers or [],
            first=first,
            step=step,
            duration=duration,
            held=held or [],
            tells_after=tells_after,
            sampling=scenario.sampling,
            extra_body=scenario.extra_body,
        )


class _Count:
    """What progress shows of the finished requests."""

    def __init__(self) -> None:
        self.finished = 0
        self.failed = 0
        self.tokens = 0
        self.waits: list[float] = []

    def add(self, record: RequestRecord) -> None:
        self.finished += 1
        if record.error is not None:
            self.failed += 1
            return
        self.tokens += output_tokens(record)
        wait = ttft(record)
        if wait is not None:
            self.waits.append(wait)


def _number(seed: str) -> int:
    """The run's seed as arrivals want it: points of a sweep share the run's number and differ in rate."""
    return int(seed.split("/", 1)[0])
