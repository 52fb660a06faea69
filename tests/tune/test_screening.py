"""The screening design and what least squares makes of it."""

from __future__ import annotations

import random

import pytest

from firsttoken.tune.arms import BASELINE, Arm, Config
from firsttoken.tune.screening import fit, lean, plan_pairs

ARMS = [Arm("a", 1), Arm("b", 1), Arm("b", 2), Arm("c", True), Arm("d", "x")]


def test_every_knob_is_changed_in_one_run_of_each_pair_and_each_value_equally_often() -> None:
    plan = plan_pairs(ARMS, 16, seed=3)
    for first, second in plan:
        assert sorted(arm.knob for arm in [*first, *second]) == ["a", "b", "c", "d"]
    for arm, times in {ARMS[0]: 16, ARMS[1]: 8, ARMS[2]: 8}.items():
        assert sum(arm in first for first, _ in plan) == sum(arm in second for _, second in plan) == times // 2
    assert plan == plan_pairs(ARMS, 16, seed=3)
    assert plan != plan_pairs(ARMS, 16, seed=4)


def true_gain(config: Config) -> float:
    """Two knobs' own gains, and one that they have only together."""
    return 0.05 * (ARMS[0] in config) - 0.1 * (ARMS[2] in config) + 0.04 * (ARMS[3] in config and ARMS[4] in config)


def test_gains_are_found_and_interactions_of_two_knobs_do_not_disturb_the_others() -> None:
    measured = [(a, b, true_gain(b) - true_gain(a)) for a, b in plan_pairs(ARMS, 16, seed=1)]
    found = fit(measured, ARMS, 0.05)
    # An interaction is half of each partner's gain: averaged over the other's two states.
    expected = dict(zip(ARMS, [0.05, 0.0, -0.1, 0.02, 0.02], strict=True))
    assert {arm: one.gain for arm, one in found.arms.items()} == pytest.approx(expected, abs=1e-9)
    assert found.noise == pytest.approx(0, abs=1e-9)


def test_a_drift_between_pairs_cancels_and_noise_is_told_by_pairs_of_equal_configs_too() -> None:
    draw = random.Random(2)
    measured = [(a, b, true_gain(b) - true_gain(a) + draw.gauss(0, 0.01)) for a, b in plan_pairs(ARMS, 14, seed=1)]
    measured += [(BASELINE, BASELINE, draw.gauss(0, 0.01)) for _ in range(10)]
    found = fit(measured, ARMS, 0.05)
    assert found.dof == 24 - 5
    assert found.noise == pytest.approx(0.01, rel=0.4)
    assert all(one.low <= expected <= one.high for one, expected in zip(
        found.arms.values(), [0.05, 0.0, -0.1, 0.02, 0.02], strict=True))  # fmt: skip
    assert found.arms[ARMS[2]].flip_p < 0.05 < found.arms[ARMS[1]].flip_p


def test_an_arm_that_no_pair_can_tell_has_no_estimate() -> None:
    always_together = frozenset({ARMS[0], ARMS[4]})
    measured = [(BASELINE, always_together, 0.1), (always_together, BASELINE, -0.1), (BASELINE, BASELINE, 0.0)]
    assert set(fit(measured, [ARMS[0], ARMS[1], ARMS[4]], 0.05).arms) == {ARMS[0]}


def test_the_first_pairs_of_a_plan_tell_as_much_as_they_can() -> None:
    plan = plan_pairs(ARMS, 16, seed=3)
    told = [fit([(*pair, 0.0) for pair in plan[:pairs]], ARMS, 0.05).arms for pairs in range(1, 17)]
    assert [len(arms) for arms in told[:5]] == [1, 2, 3, 4, 5]


def test_a_leaning_is_in_doubt_until_pairs_tell_the_arms_apart() -> None:
    noise = [(BASELINE, BASELINE, gain) for gain in (0.01, -0.02)]
    both, one = frozenset({ARMS[0], ARMS[3]}), frozenset({ARMS[0]})
    before = lean([*noise, (BASELINE, both, -0.5)], ARMS)
    assert before[ARMS[0]].gain == pytest.approx(-0.25, abs=0.01)
    assert before[ARMS[0]].high > 0 > before[ARMS[0]].low
    assert before[ARMS[1]].gain == 0
    after = lean([*noise, (BASELINE, both, -0.5), (one, both, 0.02)], ARMS)
    assert after[ARMS[0]].gain == pytest.approx(-0.52, abs=0.02)
    assert after[ARMS[0]].high < 0
    assert after[ARMS[3]].high > 0
