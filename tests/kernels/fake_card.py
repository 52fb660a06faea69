"""A card whose times are a formula, for tests of the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firsttoken.kernels.gpu.candidates import Job, Limits
from firsttoken.kernels.gpu.launch import Product


class FakeCard:
    """Times are `us(product)`; compiling takes a second a launch, a reading a tenth, on a clock of its own."""

    def __init__(self, us: Callable[[Product], float]) -> None:
        self.limits = Limits(shared_bytes=227 * 1024, dependent_launch=True, fp8=True)
        self.now = 0.0
        self.compiled: list[Product] = []
        self.refused: set[Product] = set()  # by the card, once compiled
        self.wrong: set[Product] = set()
        self._us = us

    def clock(self) -> float:
        return self.now

    def compile(
        self, launches: Sequence[tuple[Job, Product]], until: float, tell: Callable[[str], None]
    ) -> list[tuple[Job, Product]]:
        good = []
        for job, product in launches:
            if self.now >= until:
                break
            self.now += 1.0
            self.compiled.append(product)
            good.append((job, product))
            tell("compiling")
        return good

    def reader(self, job: Job, product: Product) -> Callable[[], float] | None:
        assert product in self.compiled
        if product in self.refused:
            return None

        def read() -> float:
            self.now += 0.1
            return self._us(product)

        return read

    def error(self, job: Job, product: Product) -> float:
        return 0.5 if product in self.wrong else 1e-3
