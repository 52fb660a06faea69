"""A long prompt must come while the others decode, or its figures mean something else."""

from __future__ import annotations

import random

import pytest
from tests.bench.made_up_run import intruder, made_up_run

from firsttoken.bench.arrival_check import judge_arrivals
from firsttoken.bench.records import RunResult, ScenarioResult


def arriving_after(seconds: float) -> ScenarioResult:
    """Sixteen streams, first tokens after 30 ms and last ones after about 680 ms, and the long prompt."""
    found = intruder(random.Random(1))
    found.records[-1].sent = 1000.0 + seconds
    return found


@pytest.mark.parametrize(
    ("seconds", "level", "text"),
    [(0.1, "ok", "All 16 streams"), (0.01, "fail", "Only 0 of 16"), (2.0, "fail", "Only 0 of 16")],
)
def test_an_arrival_that_meets_no_decoding_stream_fails(seconds: float, level: str, text: str) -> None:
    (check,) = judge_arrivals(arriving_after(seconds), RunResult())
    assert (check.name, check.level) == ("arrival", level)
    assert check.text.startswith(text)


def test_a_stream_that_ended_too_early_is_a_flag() -> None:
    found = arriving_after(0.1)
    found.records[0].chunks = found.records[0].chunks[:3]
    (check,) = judge_arrivals(found, RunResult())
    assert (check.level, check.text.startswith("Only 15 of 16 streams were decoding")) == ("flag", True)


def test_other_scenarios_are_left_alone() -> None:
    assert judge_arrivals(made_up_run().scenarios[0], RunResult()) == []
