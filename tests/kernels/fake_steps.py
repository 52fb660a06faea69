"""Whole steps whose times are a formula, for tests of the choice among finalists."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firsttoken.kernels.gpu.launch import Product


class FakeSteps:
    """Times are `us(rows, products)`; a reading takes a tenth of a second on a clock of its own."""

    def __init__(self, us: Callable[[int, frozenset[Product]], float]) -> None:
        self.now = 0.0
        self.refused: set[Product] = set()
        self.tried: list[frozenset[Product]] = []
        self._us = us

    def clock(self) -> float:
        return self.now

    def reader(self, rows: int, products: Sequence[Product]) -> Callable[[], float] | None:
        assert len({(p.op, p.n, p.k) for p in products}) == len(products)
        if self.refused & set(products):
            return None
        self.tried.append(frozenset(products))

        def read() -> float:
            self.now += 0.1
            return self._us(rows, frozenset(products))

        return read

    def read_bytes(self, rows: int) -> int:
        return 8_000_000_000 + rows
