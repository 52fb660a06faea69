"""Verdicts, Holm's levels, looks: their arithmetic."""

from __future__ import annotations

import pytest

from firsttoken.tune.stats import Estimate, estimate, holm, looks_for, verdict, wilson_low


def test_holm_tests_the_smallest_first_and_stops_at_the_first_that_stands() -> None:
    levels = holm({"a": 0.001, "b": 0.02, "c": 0.03, "d": 0.9}, 0.05)
    assert levels["a"] == pytest.approx(0.0125)
    # b's level would be 0.05 / 3, which it does not reach: c then stands though it is below 0.05 / 2.
    assert all(p > levels[key] for key, p in {"b": 0.02, "c": 0.03, "d": 0.9}.items())
    assert holm({"a": 0.001, "b": 0.01}, 0.05) == {"a": 0.025, "b": 0.05}
    assert holm({}, 0.05) == {}


def test_the_looks_spend_all_of_alpha_and_no_more() -> None:
    for blocks in range(6, 20):
        looks = looks_for(blocks)
        assert sum(share for _, share in looks) == pytest.approx(1.0)
        assert [end for end, _ in looks] == sorted({end for end, _ in looks})
        assert looks[-1][0] == blocks
    assert looks_for(5) == []


def test_an_interval_is_students_of_the_paired_gains() -> None:
    found = estimate([0.01, 0.02, 0.03, 0.04, 0.05, 0.06])
    assert found.gain == pytest.approx(0.035)
    assert (found.low, found.high) == pytest.approx((0.035 - 0.019633, 0.035 + 0.019633), abs=1e-5)
    assert found.p == pytest.approx(0.0059, abs=1e-4)
    assert found.flip_p == 2 / 64


def test_one_pair_has_no_interval() -> None:
    found = estimate([0.5])
    assert found.p == 1.0
    assert found.high == float("inf")


def made(gain: float, error: float = 0.005, flip: float = 0.01, pairs: int = 8) -> Estimate:
    return Estimate(gain, error, pairs - 1, pairs, flip)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (made(0.03), "helps"),
        (made(-0.03), "hurts"),
        (made(0.015, 0.001), "equivalent"),
        (made(0.03, flip=0.2), "undecided"),  # the two methods disagree
        (made(0.03, 0.02), "undecided"),
        (made(0.03, 0.001, pairs=5), "undecided"),  # too few for the sign flips
        (made(0.022, 0.004), "undecided"),  # below the noise of the machine, which here is 2.5 %
        (made(-0.015, 0.004), "undecided"),
    ],
)
def test_a_verdict_follows_from_interval_margin_and_noise(found: Estimate, expected: str) -> None:
    assert verdict(found, least=0.025) == expected


def test_the_lower_end_of_a_share_is_wilsons() -> None:
    assert wilson_low(90, 100) == pytest.approx(0.8256, abs=1e-4)
    assert wilson_low(0, 10) == 0.0
    assert wilson_low(0, 0) == 0.0
    assert wilson_low(10, 10) == pytest.approx(0.7225, abs=1e-4)
