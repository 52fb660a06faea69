"""What is said of a run that was killed in the middle of a scenario: all that a run which ends would have said."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.test_roofline import COSTS, H200, request, scenario
from tests.qwen3_4b import CONFIG

from firsttoken.bench.broken_off import judge_broken_off
from firsttoken.bench.metrics import measure
from firsttoken.bench.records import LoadSpec, RunResult
from firsttoken.bench.result_file import RecordWriter, load_result, requests_path, save_result
from firsttoken.bench.roofline import Roofline, judge_scenario
from firsttoken.bench.roofline_judge import RooflineJudge


def killed(folder: Path) -> RunResult:
    """The run that lies on disk after its process was killed while a scenario was measured."""
    config = folder / "config.json"
    config.write_text(json.dumps(CONFIG))
    run = RunResult(slo={"tpot": 0.005}, client_ceiling=1e5, client_processes=2)
    RooflineJudge(lambda device, again=False: H200, config).prepare(run)
    records = [request(i, sent=float(i), ttft=0.016, tpot=0.0036 if i else 0.006) for i in range(6)]
    point = scenario([], LoadSpec(concurrency=1, requests=20))
    point.cache = "cold"
    run.scenarios = [point]
    save_result(folder / "run.json", run)
    with RecordWriter(requests_path(folder / "run.json"), records):
        pass
    return load_result(folder / "run.json")


def test_a_killed_scenario_has_figures_ceilings_and_checks(tmp_path: Path) -> None:
    run = killed(tmp_path)
    judge_broken_off(run)
    (point,) = run.scenarios
    assert not point.complete
    assert point.metrics == measure(point.records, {"tpot": 0.005})
    assert point.metrics.goodput_share == 5 / 6
    assert point.shares == judge_scenario(scenario(point.records), Roofline(COSTS, H200))[0]
    names = ["errors", "client", "output-tokens", "cache", "warm-up", "roofline"]
    assert {check.name: check.level for check in point.checks} == dict.fromkeys(names, "ok")


def test_without_bounds_on_disk_there_are_figures_and_no_ceilings(tmp_path: Path) -> None:
    run = killed(tmp_path)
    run.bounds = {}
    judge_broken_off(run)
    assert run.scenarios[0].metrics is not None
    assert run.scenarios[0].shares == []


def test_what_ended_by_itself_is_left_as_it_was(tmp_path: Path) -> None:
    run = killed(tmp_path)
    run.scenarios[0].metrics = measure([])
    judge_broken_off(run)
    assert run.scenarios[0].checks == []
