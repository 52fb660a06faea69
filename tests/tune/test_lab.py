"""A lab's disturbed runs: which are measured again, and what is compared with what."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.tune.simulated import GOOD, plan

from firsttoken.tune.arms import BASELINE, Arm, Settings
from firsttoken.tune.disturbance import Disturbance
from firsttoken.tune.journal import Journal
from firsttoken.tune.lab import Lab, Run

BLOCK = Arm("block", 32)
OTHERS = Disturbance("cpu", "other programs used 1.0 of 2 cores", "其他程序占用了 2 个核中的 1.0 个")


class Scripted:
    """Answers with these runs in turn."""

    def __init__(self, *runs: Run) -> None:
        self._runs = list(runs)
        self.asked: list[tuple[Settings, int, int]] = []

    def __call__(self, settings: Settings, *, number: int, seed: int, limit: float | None) -> Run:
        self.asked.append((settings, number, seed))
        return self._runs.pop(0)


def run(value: float | None, disturbed: bool = False, failure: str = "") -> Run:
    return Run(value=value, seconds=10.0, failure=failure, disturbed=[OTHERS] if disturbed else [])


LabOf = Callable[[Scripted], Lab]


@pytest.fixture
def lab_of(tmp_path: Path) -> Iterator[LabOf]:
    """Makes a lab whose budget is a thousand seconds."""
    journal = Journal(tmp_path / "journal.jsonl", plan(), resume=False)
    yield lambda measure: Lab(
        journal, measure, lambda baseline, settings: GOOD, baseline={}, lower_is_better=True, budget=1000.0, seed=1
    )
    journal.close()


def test_the_last_measurement_counts_in_the_place_and_with_the_prompts_of_the_first(lab_of: LabOf) -> None:
    measure = Scripted(run(0.001, disturbed=True), run(0.004, disturbed=True), run(0.002), run(0.002))
    lab = lab_of(measure)
    assert lab.pair(BASELINE, frozenset({BLOCK})) == 0.0
    settings, numbers, seeds = zip(*measure.asked, strict=True)
    assert settings[0] == settings[1] == settings[2] != settings[3]
    assert numbers == (1, 2, 3, 4)
    assert len(set(seeds)) == 1
    assert [kept.run.value for kept in lab.runs] == [0.002, 0.002]
    assert lab.spent == 40.0


def test_what_fails_while_it_is_disturbed_is_tried_again_before_it_is_a_failure(lab_of: LabOf) -> None:
    config = frozenset({BLOCK})
    lab = lab_of(Scripted(run(None, disturbed=True, failure="too slow"), run(0.004)))
    assert lab.block([config]).keys() == {config}
    assert lab.failed == {}


@pytest.mark.parametrize(("after", "measurements"), [(970.0, 2), (985.0, 1)])
def test_time_that_is_planned_for_what_follows_is_not_spent_on_repeats(
    lab_of: LabOf, after: float, measurements: int
) -> None:
    measure = Scripted(run(0.008, disturbed=True), run(0.004))
    lab = lab_of(measure)
    lab.block([frozenset({BLOCK})], after=after)
    assert len(measure.asked) == measurements


@pytest.mark.parametrize(
    ("second_try", "gain"),
    [([run(0.004), run(0.002)], math.log(2)), ([*[run(0.008, disturbed=True)] * 3, run(0.004)], None)],
)
def test_a_pair_of_a_quiet_and_a_disturbed_run_is_measured_once_more_and_else_set_apart(
    lab_of: LabOf, second_try: list[Run], gain: float | None
) -> None:
    measure = Scripted(*[run(0.008, disturbed=True)] * 3, run(0.004), *second_try)
    lab = lab_of(measure)
    assert lab.pair(BASELINE, BASELINE) == gain
    assert len(measure.asked) == 4 + len(second_try)
    assert [pair[2] for pair in lab.unlike] == ([] if gain else [pytest.approx(math.log(2))])


@pytest.mark.parametrize(("quiet", "compared"), [(3, False), (2, True)])
def test_quiet_and_disturbed_runs_are_compared_where_a_quarter_of_all_stays_disturbed(
    lab_of: LabOf, quiet: int, compared: bool
) -> None:
    lab = lab_of(Scripted(*[run(0.008, disturbed=True)] * 3, *[run(0.004)] * (quiet + 1)))
    for _ in range(quiet + 2):
        lab.block([BASELINE])
    gain = lab.gain(lab.runs[0].run, lab.runs[1].run)
    assert gain == (pytest.approx(math.log(2)) if compared else None)
    assert lab.unlike_blocks() == 0


def test_two_runs_that_were_disturbed_alike_are_compared(lab_of: LabOf) -> None:
    lab = lab_of(Scripted(*[run(0.008, disturbed=True)] * 3, run(0.004, disturbed=True)))
    assert lab.pair(BASELINE, BASELINE) == pytest.approx(math.log(2))
    assert [one.fate for one in lab.repeats.log] == ["again", "again", "tried enough", "never quiet"]
