"""Chooses among each product's finalists by whole decode steps, where products start while their neighbours end.

A launch that is the fastest alone may keep the registers or the shared memory that its neighbour needs to start early:
on an H200 the fastest int4 launches made a step slower. Knows no card: what it asks for is injected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from firsttoken.kernels.gpu.candidates import Job
from firsttoken.kernels.gpu.launch import Product
from firsttoken.kernels.gpu.search import FINAL_READINGS, Found, Reading

MARGIN = (
    0.002  # a step must be faster by this share for a launch to replace another; readings in turns agree to half of it
)
_PASSES = 2  # the second one because each choice changes what its neighbours meet
_Launches = Mapping[Job, Product]


class Steps(Protocol):
    """What the search needs of a model on a card."""

    def reader(self, rows: int, products: Sequence[Product]) -> Reading | None:
        """Prepares a decode step of so many rows by these launches to be timed; None where the card refuses one."""

    def read_bytes(self, rows: int) -> int:
        """Bytes of weights and cache that such a step reads at least."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What whole steps of one row count decided."""

    rows: int
    found: list[Found]  # with the launches that the fastest step has
    read_bytes: int
    us: float
    before_us: float  # with the launches that were in use; of one that failed, with what replaced it
    tried: int  # steps with other launches

    @property
    def is_the_same(self) -> bool:
        """Whether the launches in use stay; times of one step differ a little from reading to reading."""
        return all(each.best == each.before for each in self.found)


def settle(
    found: Sequence[Found],
    steps: Steps,
    budget: float,
    tell: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Settled]:
    """One answer a row count, in about `budget` seconds; out of time it keeps the fastest step so far.

    Of a row count whose step cannot run as its products did there is none.
    """
    until = clock() + budget
    counts = sorted({each.job.rows for each in found})
    for done, rows in enumerate(counts):
        here = [each for each in found if each.job.rows == rows]
        share = (until - clock()) / (len(counts) - done)
        settled = _settle(rows, here, steps, clock() + share, tell, clock)
        if settled is not None:
            yield settled


def _settle(
    rows: int,
    found: list[Found],
    steps: Steps,
    until: float,
    tell: Callable[[str], None],
    clock: Callable[[], float],
) -> Settled | None:
    tell(f"whole steps of {rows} rows")
    before = {each.job: each.before if each.before in each.finalists else each.best for each in found}
    if steps.reader(rows, list(before.values())) is None:
        return None
    best, us, before_us, tried = _faster(rows, before, {each.job: each.best for each in found}, steps)
    for _ in range(_PASSES):
        start = best
        for each in sorted(found, key=lambda each: -each.job.weight_bytes):
            for product in sorted(each.finalists, key=each.finalists.__getitem__):
                if product == best[each.job]:
                    continue
                if clock() >= until:
                    break
                tell(f"whole steps of {rows} rows: {each.job.name}")
                best, us, _, more = _faster(rows, best, {**best, each.job: product}, steps)
                tried += more
        if best == start:
            break
    chosen = [each.settled_on(best[each.job]) for each in found]
    return Settled(rows, chosen, steps.read_bytes(rows), us, before_us, tried)


def _faster(rows: int, launches: _Launches, others: _Launches, steps: Steps) -> tuple[_Launches, float, float, int]:
    """The faster of two choices, its microseconds and the first one's, read in turns; and whether there were two."""
    read = steps.reader(rows, list(launches.values()))
    assert read is not None, "it ran before"
    other = steps.reader(rows, list(others.values())) if others != launches else None
    pairs = [(read(), other() if other is not None else float("inf")) for _ in range(FINAL_READINGS)]
    us, other_us = (median(readings) for readings in zip(*pairs, strict=True))
    if other_us < us * (1 - MARGIN):
        return others, other_us, us, 1
    return launches, us, us, int(other is not None)
