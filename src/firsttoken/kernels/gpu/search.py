"""Finds the fastest right launch of each product within a time budget. Knows no card: what it asks for is injected.

In rounds: compile the likeliest untried launches of every product together, then time them one by one, and begin the
next round around the best so far. The few best of a product then meet its current launch in turns, and one replaces it
only where it is faster by more than the noise and agrees with the reference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Protocol

from firsttoken.errors import FirstTokenError
from firsttoken.kernels.gpu.candidates import Job, Limits, candidates, library, nearest
from firsttoken.kernels.gpu.launch import Product

MARGIN = 0.01  # a launch must be faster by this share to replace the current one
ERROR_BOUND = 1e-2  # relative, against float64: twice what half precision leaves in the worst of these products
FP8_ERROR_BOUND = 5e-2  # of the library's product with rows that are rounded to FP8: three bits of mantissa leave 0.026
_FINALISTS = 3
_NEAR = 1.15  # of the fastest alone: what may still win in a whole step
_READINGS, FINAL_READINGS = 3, 9
_FINALS = 0.15  # share of the budget that the finals may need

Reading = Callable[[], float]
"""Measures once: microseconds a product."""


class Compiler(Protocol):
    """Makes launches ready to run."""

    def compile(
        self, launches: Sequence[tuple[Job, Product]], until: float, tell: Callable[[str], None]
    ) -> list[tuple[Job, Product]]:
        """Compiles them, side by side, and begins none after `until`; returns those that can run. Nothing runs on."""


class Card(Compiler, Protocol):
    """What the search needs of a card."""

    limits: Limits

    def reader(self, job: Job, product: Product) -> Reading | None:
        """Prepares a launch to be timed; None where the card refuses it."""

    def error(self, job: Job, product: Product) -> float:
        """The relative error against the reference in float64."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for one product."""

    job: Job
    best: Product
    us: float
    before: Product  # the launch that was in use, for these rows
    before_us: float
    tried: int
    possible: int
    finalists: Mapping[Product, float]  # the few best that are right, and the launch in use: microseconds in turns

    def settled_on(self, product: Product) -> Found:
        """With one of the finalists in place of the fastest."""
        return replace(self, best=product, us=self.finalists[product])


@dataclass(slots=True)
class _Search:
    job: Job
    before: Product
    untried: list[Product]
    possible: int
    times: dict[Product, float] = field(default_factory=dict)

    def best_of_forms(self) -> dict[str, Product]:
        best: dict[str, Product] = {}
        for product in sorted(self.times, key=self.times.__getitem__, reverse=True):
            best[product.form] = product
        return best


def search(
    jobs: Sequence[Job],
    current: Callable[[Job], Product],
    card: Card,
    budget: float,
    *,
    width: int,
    tell: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> list[Found]:
    """Measures for about `budget` seconds.

    `current` gives the launch in use; `width` is how many launches compile side by side. Raises FirstTokenError where
    a product has no launch that is right.
    """
    until = clock() + budget * (1 - _FINALS)
    searches = [_begin(job, current(job), card.limits) for job in jobs]
    first = [(each, product) for each in searches for product in {each.before: 0, library(each.job): 0}]
    _measure(first, card, float("inf"), tell)  # whatever the time: the others are compared with these
    while clock() < until and (batch := _next(searches, width)):
        _measure(batch, card, until, tell)
    return [_decide(each, card, tell) for each in searches]


def _begin(job: Job, before: Product, limits: Limits) -> _Search:
    possible = {*candidates(job, limits), library(job), before}
    return _Search(job, before, sorted(possible - {before, library(job)}, key=repr), len(possible))


def _next(searches: Sequence[_Search], width: int) -> list[tuple[_Search, Product]]:
    """Some of the likeliest for each product: about three a compiling process in all."""
    share = max(2, 3 * width // len(searches))
    batch = []
    for each in searches:
        chosen = nearest(each.untried, each.best_of_forms(), share)
        each.untried = [product for product in each.untried if product not in chosen]
        batch += [(each, product) for product in chosen]
    return batch


def _measure(batch: Sequence[tuple[_Search, Product]], card: Card, until: float, tell: Callable[[str], None]) -> None:
    ready = set(card.compile([(each.job, product) for each, product in batch], until, tell))
    for each, product in batch:
        if (each.job, product) in ready:
            tell(f"timing {each.job.name} of {each.job.rows} rows")
            read = card.reader(each.job, product)
            if read is not None:
                each.times[product] = median(read() for _ in range(_READINGS))


def _decide(each: _Search, card: Card, tell: Callable[[str], None]) -> Found:
    job, ranked = each.job, sorted(each.times, key=each.times.__getitem__)
    tell(f"the best of {job.name} of {job.rows} rows in turns")
    finalists: list[Product] = []
    for product in ranked:  # the best, and of every other form the best where it is near: it may win in a whole step
        is_new = product.form not in {known.form for known in finalists}
        near = is_new and each.times[product] <= _NEAR * each.times[ranked[0]]
        if (len(finalists) < _FINALISTS or near) and _is_right(card, job, product):
            finalists.append(product)
    before_is_right = each.before in each.times and _is_right(card, job, each.before)
    if before_is_right and each.before not in finalists:
        finalists.append(each.before)
    readers = {product: read for product in finalists if (read := card.reader(job, product)) is not None}
    if not readers:
        raise FirstTokenError(
            f"No launch of {job.name} at {job.rows} rows gives the reference's numbers on this card, not even the "
            "library's; run the tests in tests/kernels on it before anything else."
        )
    rounds = [{product: read() for product, read in readers.items()} for _ in range(FINAL_READINGS)]
    us = {product: median(reading[product] for reading in rounds) for product in readers}
    best = min(us, key=us.__getitem__)
    before_us = us.get(each.before, float("inf"))
    if us[best] >= before_us * (1 - MARGIN):
        best = each.before
    return Found(job, best, us[best], each.before, before_us, len(each.times), each.possible, us)


def _is_right(card: Card, job: Job, product: Product) -> bool:
    rounded = product.form == "library" and product.weight.startswith("fp8")
    return card.error(job, product) < (FP8_ERROR_BOUND if rounded else ERROR_BOUND)
