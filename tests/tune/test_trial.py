"""Runs on real processes: what is measured, and how failures and a slow server come back."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from firsttoken.bench.records import LoadSpec, Sample
from firsttoken.bench.scenario import RandomPrompts, Scenario
from firsttoken.tune.space import load_space
from firsttoken.tune.trial import Bench, Trials

COMMAND = f"{shlex.quote(sys.executable)} -m tests.tune.served --port {{port}} {{flags}}"
SCENARIO = Scenario(
    name="short",
    title="short",
    workload=RandomPrompts(input_tokens=8, output_tokens=6),
    loads=[LoadSpec(concurrency=1, requests=4)],
)


@pytest.fixture
def trials(tmp_path: Path) -> Trials:
    bench = Bench(
        space=load_space("firsttoken", command=COMMAND),
        model="scripted",
        always="",
        scenarios=lambda server: [SCENARIO],
        objective="tpot",
        slo={"ttft": 5.0},
        folder=tmp_path,
        ready_timeout=60.0,
        request_timeout=30.0,
    )
    return Trials(bench)


def test_a_run_has_the_objective_other_figures_and_the_share_within_the_limits(trials: Trials, tmp_path: Path) -> None:
    run = trials({"max-num-seqs": 8}, number=7, seed=1, limit=None)
    assert run.failure == ""
    assert run.value is not None
    assert 0.002 <= run.value < 1.0
    assert run.figures["tpot"] == run.value
    assert (run.slo_met, run.slo_of) == (4, 4)
    assert (tmp_path / run.result).exists()
    assert not (tmp_path / "server.pid").exists()


class Crowded:
    """A monitor that sees other programs use one of two cores, all the time."""

    def start(self, server_pid: int | None) -> None:
        self._start = time.monotonic()

    def stop(self) -> None:
        pass

    def samples(self) -> list[Sample]:
        loads = [("host", {"busy_cores": 1.5, "cores": 2.0})]
        loads += [("process:server/a:1", {"cpu_percent": 40.0}), ("process:client/b:2", {"cpu_percent": 10.0})]
        times = (self._start - 1, time.monotonic())
        return [Sample(at=at, source=source, values=values) for at in times for source, values in loads]

    def absent(self) -> list[str]:
        return []


def test_a_run_tells_what_disturbed_it(trials: Trials) -> None:
    scenario = msgspec.structs.replace(SCENARIO, loads=[LoadSpec(concurrency=1, requests=30)])
    crowded = Trials(replace(trials.bench, scenarios=lambda server: [scenario]), lambda url: Crowded())
    run = crowded({}, number=1, seed=1, limit=None)
    assert [one.text for one in run.disturbed] == ["other programs used 1.0 of 2 cores"]
    assert run.value is not None


def test_a_server_that_does_not_start_is_a_result(trials: Trials) -> None:
    run = trials({"max-num-seqs": 64}, number=1, seed=1, limit=None)
    assert run.value is None
    assert "ended with code 3; its log's last line: out of memory" in run.failure


def test_a_run_over_its_limit_is_ended_and_its_server_too(trials: Trials, tmp_path: Path) -> None:
    run = trials({}, number=1, seed=1, limit=0.0)
    assert run.value is None
    assert "six times what the baseline takes" in run.failure
    assert not (tmp_path / "server.pid").exists()


def test_the_probe_tells_what_the_work_is(trials: Trials) -> None:
    probe = trials.probe({}, seed=1)
    assert probe.failure == ""
    assert (probe.longest_prompt, probe.longest, probe.most_streams, probe.output) == (8, 14, 1, 6)
    assert probe.cores >= 1
    assert probe.tpot >= 0.004


def test_a_probe_of_a_server_that_does_not_start_says_why(trials: Trials) -> None:
    assert "out of memory" in trials.probe({"max-num-seqs": 64}, seed=1).failure


def test_what_a_killed_session_left_is_gone_before_the_next_run(trials: Trials, tmp_path: Path) -> None:
    note = tmp_path / "server.pid"
    note.write_text("1")  # a process that is not the guard of this file is left alone
    trials.begin()
    assert not note.exists()
