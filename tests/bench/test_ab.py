"""Experiments in pairs: their order, their prompts, and how they go on after a crash. Servers are made up."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bench.sides import run, scenario

from firsttoken.bench.ab import (
    Experiment,
    compare_folder,
    load_experiment,
    load_pairs,
    open_experiment,
    run_ab,
)
from firsttoken.bench.events import Event, Note
from firsttoken.bench.records import RunResult
from firsttoken.bench.result_file import RecordWriter, requests_path, save_result
from firsttoken.errors import ConfigError


class Servers:
    """Measures what each command is made to give, and can crash at a given run."""

    def __init__(self, tpot: dict[str, float], crash_at: int | None = None) -> None:
        self.tpot, self.crash_at = tpot, crash_at
        self.runs: list[tuple[str, int, str]] = []

    def __call__(self, command: str, seed: int, out: Path) -> RunResult:
        assert not out.exists(), "a run would go on from another one's rest"
        self.runs.append((command, seed, out.stem))
        jitter = 1 + 1e-4 * (len(self.runs) % 5)
        result = run(scenario(tpot=self.tpot[command] * jitter))
        records, result.scenarios[0].records = result.scenarios[0].records, []
        save_result(out, result)
        with RecordWriter(requests_path(out), records):
            pass
        if self.crash_at == len(self.runs):
            raise KeyboardInterrupt
        return result


def test_sides_take_turns_at_being_first_in_random_order() -> None:
    orders = {tuple(Experiment(a="x", b="y", pairs=8, seed=seed).order()) for seed in range(20)}
    assert len(orders) > 10
    assert all(sum(first == "a" for first, _ in order) == 4 for order in orders)
    odd = [sum(first == "a" for first, _ in Experiment(a="x", b="y", pairs=5, seed=i).order()) for i in range(40)]
    assert set(odd) == {2, 3}


def test_every_pair_runs_both_commands_on_the_same_prompts_and_no_other_pairs(tmp_path: Path) -> None:
    servers = Servers({"serve a": 0.004, "serve b": 0.0036})
    experiment = open_experiment(tmp_path, "serve a", "serve b", pairs=8, seed=3)
    found = run_ab(experiment, tmp_path, servers)
    assert len(servers.runs) == 16
    pairs = [servers.runs[i : i + 2] for i in range(0, 16, 2)]
    assert all({command for command, _, _ in pair} == {"serve a", "serve b"} for pair in pairs)
    assert all(pair[0][1] == pair[1][1] for pair in pairs)
    assert len({seed for _, seed, _ in servers.runs}) == 8
    (tpot,) = (row for row in found.rows if row.figure.key == "tpot")
    assert tpot.interval is not None
    assert tpot.interval.verdict == "better"
    assert tpot.interval.ratio == pytest.approx(0.9, rel=0.001)
    assert found.notes[:2] == ["A: serve a", "B: serve b"]


@pytest.mark.parametrize("crash_at", [1, 2, 5, 6])
def test_after_a_crash_whole_pairs_are_kept_and_a_half_one_is_measured_again(tmp_path: Path, crash_at: int) -> None:
    tpot = {"x": 0.004, "y": 0.004}
    experiment = open_experiment(tmp_path, "x", "y", pairs=4, seed=1)
    with pytest.raises(KeyboardInterrupt):
        run_ab(experiment, tmp_path, Servers(tpot, crash_at))
    whole = (crash_at - 1) // 2  # the pair in which it crashed does not count
    assert len(load_pairs(tmp_path)) == whole
    told: list[Event] = []
    servers = Servers(tpot)
    run_ab(open_experiment(tmp_path, "x", "y", pairs=4), tmp_path, servers, told.append)
    assert len(servers.runs) == 2 * (4 - whole)
    assert len(load_pairs(tmp_path)) == 4
    assert (Note(f"{whole} of 4 pairs are done already") in told) == (whole > 0)


def test_a_finished_experiment_is_compared_without_a_run(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path, "x", "y", pairs=2, seed=1)
    run_ab(experiment, tmp_path, Servers({"x": 0.004, "y": 0.004}))
    again = Servers({})
    assert run_ab(experiment, tmp_path, again) == compare_folder(tmp_path)
    assert again.runs == []


@pytest.mark.parametrize("change", [{"a": "z"}, {"b": "z"}, {"pairs": 9}, {"seed": 2}])
def test_a_folder_of_another_experiment_is_left_alone(tmp_path: Path, change: dict[str, object]) -> None:
    plan: dict[str, object] = {"a": "x", "b": "y", "pairs": 8, "seed": 1}
    first = open_experiment(tmp_path, **plan)  # type: ignore[arg-type]  # a table of keyword arguments
    with pytest.raises(ConfigError, match="holds another experiment"):
        open_experiment(tmp_path, **(plan | change))  # type: ignore[arg-type]  # as above
    assert load_experiment(tmp_path) == first


def test_without_a_seed_each_new_experiment_draws_its_own_and_keeps_it(tmp_path: Path) -> None:
    first, second = (open_experiment(tmp_path / name, "x", "y") for name in ("one", "two"))
    assert first.seed != second.seed
    assert open_experiment(tmp_path / "one", "x", "y") == first


def test_no_pairs_and_an_empty_folder_are_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one pair at least"):
        open_experiment(tmp_path, "x", "y", pairs=0)
    with pytest.raises(ConfigError, match=r"ab\.json is missing"):
        compare_folder(tmp_path)
    open_experiment(tmp_path, "x", "y")
    with pytest.raises(ConfigError, match="no finished pair yet"):
        compare_folder(tmp_path)
    (tmp_path / "ab.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_experiment(tmp_path)


def test_keys_in_the_commands_are_used_and_neither_kept_nor_told(tmp_path: Path) -> None:
    a, b = "serve --api-key s3cret", "serve --api-key s3cret --fast"
    servers = Servers({a: 0.004, b: 0.004})
    told: list[Event] = []
    found = run_ab(open_experiment(tmp_path, a, b, pairs=1, seed=1), tmp_path, servers, told.append)
    assert {command for command, _, _ in servers.runs} == {a, b}
    assert "s3cret" not in f"{told} {found.notes} {(tmp_path / 'ab.json').read_text()}"
    assert found.notes[0] == "A: serve --api-key …"
    assert open_experiment(tmp_path, a, b, pairs=1).a == a  # another session goes on with it
