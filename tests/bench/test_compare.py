"""Runs side by side: values and changes, refusals, and how often a verdict is wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.bench.made_up_run import made_up_run
from tests.bench.sides import run, scenario

from firsttoken.bench.compare import Comparison, Row, compare, compare_pairs
from firsttoken.bench.records import CeilingShare, Check, LoadSpec, RunResult, Sample
from firsttoken.errors import ConfigError

Draw = Callable[[np.random.Generator], float]


def row(found: Comparison, key: str, name: str = "steady") -> Row:
    (one,) = (row for row in found.rows if row.figure.key == key and row.scenario == name)
    return one


def test_runs_are_shown_with_their_change_and_without_a_claim() -> None:
    found = compare([run(scenario(ttft=0.02, rate=1000)), run(scenario(ttft=0.015, rate=1300))], ["old", "new"])
    assert found.labels == ["old", "new"]
    assert row(found, "ttft").values == [0.02, 0.015]
    assert row(found, "ttft").change == [None, pytest.approx(-0.25)]
    assert row(found, "output_tokens_per_s").change == [None, pytest.approx(0.3)]
    assert row(found, "ready", "").values == [5.0, 5.0]
    assert all(row.interval is None for row in found.rows)
    assert "no difference is claimed" in found.notes[0]


def test_requests_of_different_kinds_are_compared_apart() -> None:
    one = made_up_run()
    one.scenarios = one.scenarios[-1:]
    found = compare([one, one], ["old", "new"])
    by_place = {place: [row for row in found.rows if row.scenario == place] for place in
                ("intruder", "intruder, arrival", "intruder, background")}  # fmt: skip
    assert [row.figure.key for row in by_place["intruder, background"]] == [
        "ttft", "tpot", "worst_gap", "worst_token_gap", "e2e",
    ]  # fmt: skip
    assert by_place["intruder, background"][2].values == pytest.approx([0.338, 0.338], abs=0.001)
    assert by_place["intruder, arrival"][0].values == pytest.approx([0.997, 0.997])
    assert not {"ttft", "worst_gap"} & {row.figure.key for row in by_place["intruder"]}


def test_three_runs_are_each_compared_to_the_first() -> None:
    found = compare([run(scenario(tpot=tpot)) for tpot in (0.004, 0.005, 0.002)], ["a", "b", "c"])
    assert row(found, "tpot").change == [None, pytest.approx(0.25), pytest.approx(-0.5)]


def test_shares_and_sensors_are_shown_where_they_were_read() -> None:
    first, second = run(), run()
    first.scenarios[0].shares = [CeilingShare(figure="tpot", measured=4e-3, ceiling=2e-3, share=0.5, bound="memory")]
    first.samples = [Sample(at=105.0, source="gpu0", values={"gpu_percent": 90.0, "memory_used_bytes": 9e9})]
    found = compare([first, second], ["a", "b"])
    assert row(found, "tpot_share").values == [0.5, None]
    assert row(found, "gpu_percent").values == [90.0, None]
    assert row(found, "vram_bytes").values == [9e9, None]
    assert not [row for row in found.rows if row.figure.key == "power_w"]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (scenario("another"), "no finished scenario is in all of them: A has steady; B has another"),
        (scenario(complete=False), "B has none"),
        (scenario(load=LoadSpec(concurrency=32, requests=64)), r"its load \(16 in flight and 32 in flight"),
        (scenario(load=LoadSpec(concurrency=16, requests=8)), "64 requests and 8 requests"),
        (scenario(prompt_tokens=4096), r"its prompts' length \(512 and 4096 tokens\)"),
        (scenario(max_tokens=512), r"the output asked for \(256 and 512 tokens\)"),
    ],
)
def test_what_did_not_measure_the_same_thing_is_refused_in_a_sentence(other: object, text: str) -> None:
    second = run(other)  # type: ignore[arg-type]  # a parameter of this test
    with pytest.raises(ConfigError, match=text):
        compare([run(), second], ["A", "B"])
    with pytest.raises(ConfigError):
        compare_pairs([(run(), second)])


def test_one_result_is_no_comparison() -> None:
    with pytest.raises(ConfigError, match="two results at least"):
        compare([run()], ["A"])
    with pytest.raises(ConfigError, match="one finished pair"):
        compare_pairs([])


def test_a_warm_up_of_another_length_and_a_templates_few_tokens_do_not_matter() -> None:
    other = scenario(load=LoadSpec(concurrency=16, requests=64, warm_up=9), prompt_tokens=516)
    assert compare([run(), run(other)], ["A", "B"]).rows


def test_a_reader_is_told_of_other_models_machines_left_out_scenarios_and_failed_checks() -> None:
    first, second = run(), run(scenario(), scenario("more"), model="other")
    first.machine, second.machine = {"gpu": "NVIDIA H200", "cpu": "Xeon"}, {"cpu": "Xeon"}
    second.scenarios[0].checks = [Check(name="client", level="fail", text="The client was the limit.")]
    notes = compare([first, second], ["A", "B"]).notes
    assert "The machines differ: NVIDIA H200, Xeon." in notes
    assert "The models differ: m, other." in notes
    assert "Left out, because not every result has them: more." in notes
    assert "B's figures must not be used where a self-check failed: steady: client." in notes


def pairs_of(seed: int, effect: float, draw: Draw, pairs: int = 8) -> list[tuple[RunResult, RunResult]]:
    """Pairs whose machine drifts by 5 % between them, each figure of each run with noise of its own.

    `effect` is by how much B is faster in every figure.
    """
    random = np.random.default_rng(seed)

    def side(drift: float, gain: float) -> RunResult:
        def time(base: float) -> float:
            return base * drift * float(np.exp(draw(random))) * (1 - gain)

        one = scenario(ttft=time(0.02), tpot=time(0.004), e2e=time(1.0), rate=1 / time(1 / 3500))
        return run(one, ready=time(5.0))

    found = []
    for _ in range(pairs):
        drift = float(np.exp(random.normal(0, 0.05)))
        found.append((side(drift, 0.0), side(drift, effect)))
    return found


def normal(random: np.random.Generator) -> float:
    return float(random.normal(0, 0.01))


def heavy(random: np.random.Generator) -> float:
    """Mostly calm, at times a run that was disturbed; a standard deviation near 1 % as well."""
    return float(random.standard_t(3)) * 0.006


def verdicts(found: Comparison) -> dict[str, str]:
    return {row.figure.key: row.interval.verdict for row in found.rows if row.interval is not None}


@pytest.mark.parametrize("draw", [normal, heavy])
def test_equal_sides_are_told_apart_in_at_most_a_few_of_a_thousand_experiments(draw: Draw) -> None:
    wrong = 0
    for seed in range(1000):
        found = verdicts(compare_pairs(pairs_of(seed, 0.0, draw)))
        assert len(found) == 5
        wrong += any(verdict in ("better", "worse") for verdict in found.values())  # in any of the five figures
    assert wrong / 1000 <= 0.065


def test_three_percent_are_found_in_eight_pairs_of_runs_with_one_percent_of_noise() -> None:
    found = [verdicts(compare_pairs(pairs_of(seed, 0.03, normal))) for seed in range(500)]
    for key in ("ready", "ttft", "tpot", "e2e", "output_tokens_per_s"):
        assert sum(one[key] == "better" for one in found) / 500 >= 0.8
        assert sum(one[key] == "worse" for one in found) == 0


def test_an_interval_covers_the_true_ratio_of_all_figures_at_once_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(500):
        rows = [row for row in compare_pairs(pairs_of(seed, 0.03, normal)).rows if row.interval is not None]
        truth = {row.figure.key: 1 / 0.97 if row.figure.key == "output_tokens_per_s" else 0.97 for row in rows}
        covered += all(r.interval and r.interval.low <= truth[r.figure.key] <= r.interval.high for r in rows)
    assert covered / 500 >= 0.93


def test_a_slower_side_is_worse_and_steady_equal_sides_are_equivalent() -> None:
    slower = compare_pairs(pairs_of(1, -0.10, normal))
    assert set(verdicts(slower).values()) == {"worse"}
    steady = compare_pairs(pairs_of(1, 0.0, lambda random: float(random.normal(0, 0.001))))
    assert set(verdicts(steady).values()) == {"equivalent"}
    assert (steady.paired, steady.margin, steady.confidence) == (True, 0.02, 0.95)


def test_few_pairs_decide_nothing_and_say_so() -> None:
    found = compare_pairs(pairs_of(1, 0.2, normal, pairs=3))
    assert set(verdicts(found).values()) == {"undecided"}
    assert "3 pairs are too few to claim a difference: 6 are the least." in found.notes


def test_a_pair_without_a_figure_is_left_out_of_that_row_alone() -> None:
    pairs = pairs_of(1, 0.1, normal)
    pairs[0][1].ready_seconds = None
    found = compare_pairs(pairs)
    ready, ttft = row(found, "ready", "").interval, row(found, "ttft").interval
    assert ready is not None
    assert ttft is not None
    assert (ready.pairs, ttft.pairs) == (7, 8)
