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

MARGIN = 0.002  # a step must be faster by this share for a launch to replace another
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


@dataclass(slots=True)
class _Fastest:
    """The fastest step so far, ready to be read again."""

    launches: _Launches
    read: Reading
    us: float = 0.0
    before_us: float = 0.0  # of the first one, where it met another
    tried: int = 0  # others

    def alone(self) -> None:
        """Reads it where there is nothing to compare it with."""
        self.us = self.before_us = median(self.read() for _ in range(FINAL_READINGS))

    def meet(self, launches: _Launches, read: Reading) -> None:
        """Reads both in turns, and keeps the faster."""
        pairs = [(self.read(), read()) for _ in range(FINAL_READINGS)]
        self.us, other_us = (median(readings) for readings in zip(*pairs, strict=True))
        if not self.tried:
            self.before_us = self.us
        self.tried += 1
        if other_us < self.us * (1 - MARGIN):
            self.launches, self.read, self.us = launches, read, other_us


def _settle(
    rows: int,
    found: list[Found],
    steps: Steps,
    until: float,
    tell: Callable[[str], None],
    clock: Callable[[], float],
) -> Settled | None:
    tell(f"whole steps of {rows} rows")

    def prepared(launches: _Launches) -> Reading | None:
        return steps.reader(rows, list(launches.values()))

    before = {each.job: each.before if each.before in each.finalists else each.best for each in found}
    read = prepared(before)
    if read is None:
        return None
    fastest, alone = _Fastest(before, read), {each.job: each.best for each in found}
    if alone != before and (other := prepared(alone)) is not None:
        fastest.meet(alone, other)
    else:
        fastest.alone()
    for _ in range(_PASSES):
        start = fastest.launches
        for each in sorted(found, key=lambda each: -each.job.weight_bytes):
            for product in sorted(each.finalists, key=each.finalists.__getitem__):
                if product == fastest.launches[each.job]:
                    continue
                if clock() >= until:
                    break
                tell(f"whole steps of {rows} rows: {each.job.name}")
                launches = {**fastest.launches, each.job: product}
                if (other := prepared(launches)) is not None:
                    fastest.meet(launches, other)
        if fastest.launches == start:
            break
    chosen = [each.settled_on(fastest.launches[each.job]) for each in found]
    return Settled(rows, chosen, steps.read_bytes(rows), fastest.us, fastest.before_us, fastest.tried)
