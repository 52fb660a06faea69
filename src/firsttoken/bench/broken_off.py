"""Figures and verdicts of scenarios whose run was killed: of these only the raw records and the plan are on disk."""

from __future__ import annotations

import msgspec

from firsttoken.bench.arrival_check import judge_arrivals
from firsttoken.bench.metrics import measure, measure_groups
from firsttoken.bench.records import RunResult, ScenarioResult
from firsttoken.bench.roofline import Roofline, judge_scenario
from firsttoken.bench.self_check import check_scenario


def judge_broken_off(result: RunResult) -> None:
    """Fills in what a run that ends by itself writes down. The machine that reads this may be another one, so ceilings
    come from the file; what only the running client knew (how late it was) stays unknown.
    """
    roofline = msgspec.convert(result.bounds, Roofline) if result.bounds else None
    for scenario in result.scenarios:
        if scenario.metrics is None and any(record.phase == "measured" for record in scenario.records):
            _judge(scenario, result, roofline)


def _judge(scenario: ScenarioResult, result: RunResult, roofline: Roofline | None) -> None:
    records = scenario.records
    scenario.metrics = measure(records, result.slo)
    scenario.group_metrics = measure_groups(records, result.slo)
    scenario.ended = scenario.ended or max(record.ended for record in records)
    scenario.started = scenario.started or min(record.sent for record in records)
    ceiling = result.client_ceiling
    if ceiling is not None:
        ceiling = ceiling * len({record.client for record in records}) / result.client_processes
    scenario.checks = check_scenario(scenario, cache=scenario.cache, client_ceiling=ceiling)
    scenario.checks += judge_arrivals(scenario, result)
    if roofline is not None:
        scenario.shares, checks = judge_scenario(scenario, roofline)
        scenario.checks += checks
