"""The search over a card whose times are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kernels.fake_card import FakeCard

from firsttoken.errors import FirstTokenError
from firsttoken.kernels.gpu.candidates import Job, candidates, library
from firsttoken.kernels.gpu.launch import Product, default_product
from firsttoken.kernels.gpu.search import Found, search

JOB = Job(name="o", op="linear_add", n=2560, k=4096, rows=1)
BEFORE = default_product(JOB.op, JOB.n, JOB.k, JOB.rows)
BEST = replace(BEFORE, bn=4, bk=1024, warps=4, ahead=3)


def smooth(product: Product) -> float:
    """A valley around BEST; the library is far up."""
    if product.form == "library":
        return 30.0
    return (
        10.0
        + abs(product.bn - BEST.bn)
        + abs(product.bk - BEST.bk) / 512
        + abs(product.ahead - BEST.ahead)
        + (product.warps != BEST.warps)
    )


def run(card: FakeCard, budget: float = 1000.0) -> Found:
    return search([JOB], lambda job: BEFORE, card, budget, width=1, tell=lambda text: None, clock=card.clock)[0]


def test_with_time_enough_everything_is_tried_and_the_fastest_is_found() -> None:
    card = FakeCard(smooth)
    found = run(card)
    assert (found.best, found.us) == (BEST, 10.0)
    assert (found.before, found.before_us) == (BEFORE, smooth(BEFORE))
    assert set(card.compiled) == {*candidates(JOB, card.limits), library(JOB)}
    assert found.tried == found.possible == len(card.compiled)


def test_a_short_search_goes_downhill_and_keeps_to_its_budget() -> None:
    card = FakeCard(smooth)
    found = run(card, budget=30.0)
    assert found.us < smooth(BEFORE) - 2
    assert found.tried < found.possible / 2
    assert card.now < 30.0


def test_without_any_time_the_launch_in_use_still_meets_the_librarys() -> None:
    card = FakeCard(lambda product: 5.0 if product.form == "library" else 10.0)
    assert run(card, budget=0.1).best == library(JOB)
    assert card.compiled == [BEFORE, library(JOB)]


@pytest.mark.parametrize(("gain", "kept"), [(0.005, True), (0.02, False)])
def test_a_launch_must_be_faster_by_more_than_the_noise(gain: float, kept: bool) -> None:
    found = run(FakeCard(lambda product: 10.0 * (1 - gain) if product == BEST else 10.0))
    assert found.best == (BEFORE if kept else BEST)


def test_a_fast_launch_with_wrong_numbers_is_not_chosen() -> None:
    card = FakeCard(smooth)
    card.wrong = {BEST}
    assert run(card).us == 11.0


def test_a_launch_in_use_with_wrong_numbers_is_replaced_by_a_slower_one() -> None:
    card = FakeCard(lambda product: 1.0 if product == BEFORE else smooth(product))
    card.wrong = {BEFORE}
    assert run(card).best == BEST


def test_a_launch_that_the_card_refuses_is_passed_over() -> None:
    card = FakeCard(smooth)
    card.refused = {BEST, BEFORE}
    found = run(card)
    assert found.us == 11.0
    assert found.before_us == float("inf")


def test_a_card_that_gets_nothing_right_is_told() -> None:
    card = FakeCard(smooth)
    card.wrong = {*candidates(JOB, card.limits), library(JOB)}
    with pytest.raises(FirstTokenError, match="No launch of o at 1 rows gives the reference's numbers"):
        run(card)
