"""Intervals and tests: their arithmetic against known values, their claims by simulation with fixed seeds."""

from __future__ import annotations

import math

import pytest

from firsttoken.bench.statistics import (
    MINIMUM_PAIRS,
    PairedRatio,
    flip_p,
    paired_ratio,
    t_quantile,
)


@pytest.mark.parametrize(
    ("p", "dof", "known"),  # as scipy.stats.t.ppf gives them; closed forms below are exact
    [
        (0.975, 2, 4.302652729749462),
        (0.975, 7, 2.364624251592784),
        (0.95, 5, 2.0150483733330233),
        (0.995, 9, 3.249835541592126),
        (0.975, 30, 2.0422724563012378),
        (0.975, 1000, 1.9623390808264083),
        (0.99375, 7, 3.3352949398170826),
        (0.9999, 3, 22.203742273205),
        (0.025, 7, -2.364624251592784),
        (0.75, 0.5, 1.5537739740300383),
        (0.975, 2.5, 3.5746548420036817),
    ],
)
def test_t_quantiles_are_those_of_a_known_library(p: float, dof: float, known: float) -> None:
    assert t_quantile(p, dof) == pytest.approx(known, rel=1e-10)


@pytest.mark.parametrize("p", [0.5, 0.6, 0.9, 0.975, 0.9995])
def test_t_quantiles_meet_the_closed_forms_for_one_and_two_degrees(p: float) -> None:
    assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-10)
    assert t_quantile(p, 2) == pytest.approx((2 * p - 1) / math.sqrt(2 * p * (1 - p)), rel=1e-10)


@pytest.mark.parametrize(("p", "dof"), [(0.0, 3), (1.0, 3), (0.9, 0)])
def test_a_t_quantile_outside_its_domain_is_refused(p: float, dof: float) -> None:
    with pytest.raises(ValueError, match="t quantile"):
        t_quantile(p, dof)


def test_a_paired_interval_is_the_one_of_a_paired_t_test_on_logarithms() -> None:
    result = paired_ratio([10.1, 9.8, 10.3, 10.0, 9.9, 10.2], [10.5, 10.1, 10.4, 10.6, 10.2, 10.4])
    assert result.ratio == pytest.approx(1.031518982930104, rel=1e-12)
    assert (result.low, result.high) == pytest.approx((1.0135852180014706, 1.0497700570684647), rel=1e-10)
    assert result.flip_p == 2 / 64  # every pair went the same way
    assert result.differs


def test_one_pair_claims_nothing() -> None:
    result = paired_ratio([1.0], [2.0])
    assert (result.ratio, result.low, result.high, result.differs) == (2.0, 0.0, math.inf, False)


def test_fewer_pairs_than_the_minimum_never_claim_a_difference() -> None:
    a = [1.0 + 1e-6 * i for i in range(MINIMUM_PAIRS)]
    b = [2.0] * MINIMUM_PAIRS
    assert not paired_ratio(a[:-1], b[:-1]).differs
    assert paired_ratio(a, b).differs


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [math.nan])])
def test_figures_that_have_no_ratio_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pair|ratio"):
        paired_ratio(a, b)


def test_the_sign_flip_test_counts_the_patterns_that_are_as_far_from_zero() -> None:
    assert flip_p([1.0, 2.0, 3.0]) == 2 / 8
    assert flip_p([3.0, -1.0, 1.0]) == 6 / 8  # of sums 5, 3, 3, 1 with their mirrors, three quarters reach 3
    assert flip_p([0.0, 0.0]) == 1.0


def test_many_pairs_are_tested_on_drawn_patterns() -> None:
    values = [1.0 + 0.1 * (i % 3) for i in range(30)]
    assert flip_p(values) < 0.001
    assert flip_p([value if i % 2 else -value for i, value in enumerate(values)]) > 0.5


def ratio(low: float, high: float, flip: float = 0.01) -> PairedRatio:
    return PairedRatio(8, math.sqrt(low * high), low, high, 0.95, flip)


@pytest.mark.parametrize(
    ("result", "lower_is_better", "expected"),
    [
        (ratio(0.94, 0.97), True, "better"),
        (ratio(0.94, 0.97), False, "worse"),
        (ratio(1.005, 1.05), True, "worse"),
        (ratio(1.005, 1.05), False, "better"),
        (ratio(0.99, 1.015), True, "equivalent"),
        (ratio(1.002, 1.015), True, "equivalent"),  # a difference, but too small to matter
        (ratio(0.97, 1.03), True, "undecided"),
        (ratio(0.94, 0.97, flip=0.2), True, "undecided"),  # the two methods disagree
    ],
)
def test_a_verdict_follows_from_interval_margin_and_direction(
    result: PairedRatio, lower_is_better: bool, expected: str
) -> None:
    assert result.verdict(lower_is_better=lower_is_better, margin=0.02) == expected
