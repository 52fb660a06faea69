"""The journal: what a session that was killed finds again, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tune.simulated import CANDIDATES, GOOD, Machine, plan

from firsttoken.errors import ConfigError
from firsttoken.tune.journal import Journal
from firsttoken.tune.lab import Lab, Run
from firsttoken.tune.session import Outcome, Session


def test_answers_are_taken_from_the_file_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path, plan(), resume=False)
    assert first.step("run", {"number": 1}, lambda: {"value": 1.5}) == {"value": 1.5}
    first.close()
    second = Journal(path, plan(), resume=True)
    assert second.known == 1
    assert second.step("run", {"number": 1}, lambda: {"value": 2.5}) == {"value": 1.5}
    assert second.step("run", {"number": 2}, lambda: {"value": 3.5}) == {"value": 3.5}
    second.close()
    assert len(path.read_text().splitlines()) == 3


def test_a_line_that_was_cut_short_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, plan(), resume=False)
    journal.step("run", {"number": 1}, lambda: {"value": 1.5})
    journal.step("run", {"number": 2}, lambda: {"value": 2.5})
    journal.close()
    path.write_bytes(path.read_bytes()[:-9])
    again = Journal(path, plan(), resume=True)
    assert again.known == 1
    again.step("run", {"number": 1}, dict)
    assert again.step("run", {"number": 2}, lambda: {"value": 4.5}) == {"value": 4.5}
    again.close()


def test_a_session_is_not_begun_over_another_nor_resumed_from_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with pytest.raises(ConfigError, match="no session to resume"):
        Journal(path, plan(), resume=True)
    Journal(path, plan(), resume=False).close()
    with pytest.raises(ConfigError, match="--resume"):
        Journal(path, plan(), resume=False)
    with pytest.raises(ConfigError, match="another objective, budget"):
        Journal(path, plan(objective="throughput", budget=2.0), resume=True)
    path.write_text("nonsense\n")
    with pytest.raises(ConfigError, match="line 1 of"):
        Journal(path, plan(), resume=True)


def test_two_sessions_do_not_work_in_one_folder(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path, plan(), resume=False)
    with pytest.raises(ConfigError, match="another `firsttoken tune` works in"):
        Journal(path, plan(), resume=True)
    first.close()
    Journal(path, plan(), resume=True).close()


def test_an_answer_to_another_question_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, plan(), resume=False)
    journal.step("run", {"number": 1}, dict)
    journal.close()
    again = Journal(path, plan(), resume=True)
    with pytest.raises(ConfigError, match="is not what this session asks for"):
        again.step("run", {"number": 7}, dict)
    again.close()


class Killed(Exception):
    pass


def run_session(path: Path, resume: bool, measure: Any) -> Outcome:
    journal = Journal(path, plan(), resume=resume)
    lab = Lab(
        journal,
        measure,
        lambda baseline, settings: GOOD,
        baseline={},
        lower_is_better=True,
        budget=3 * 3600,
        seed=1,
    )
    try:
        return Session(lab, CANDIDATES, seed=1).run()
    finally:
        journal.close()


def no_others(number: int) -> float:
    return 0.0


def bursts(number: int) -> float:
    """Another program: for one measurement, for so many that a run is never quiet, and again near the end."""
    return 1.0 if number in (4, 17, 18, 19, 20, 21, 22, 62) else 0.0


@pytest.mark.parametrize(
    ("others", "at", "repeats"),
    [*[(no_others, at, 0) for at in (1, 17, 55, 63)], *[(bursts, at, 4) for at in (5, 19, 21, 63)]],
)
def test_a_session_killed_at_any_run_reaches_the_same_verdicts(
    tmp_path: Path, others: Callable[[int], float], at: int, repeats: int
) -> None:
    def effect(settings: Any) -> float:
        return 0.04 if settings.get("block") == 32 else 0.0

    whole = run_session(tmp_path / "whole.jsonl", False, Machine(effect, 5, others=others))

    machine = Machine(effect, 5, others=others)

    def killed(settings: Any, *, number: int, seed: int, limit: float | None) -> Run:
        if number == at:
            raise Killed
        return machine(settings, number=number, seed=seed, limit=limit)

    with pytest.raises(Killed):
        run_session(tmp_path / "cut.jsonl", False, killed)
    assert run_session(tmp_path / "cut.jsonl", True, machine) == whole
    written = (tmp_path / "cut.jsonl").read_bytes()
    assert written == (tmp_path / "whole.jsonl").read_bytes()
    assert written.count(b'"instead_of"') == repeats
    assert len(machine.asked) == written.count(b'"kind":"run"') >= 64  # none was measured twice
