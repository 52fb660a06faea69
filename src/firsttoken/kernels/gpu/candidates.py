"""Which launches of a product are worth measuring, and in which order. Arithmetic alone: no card is asked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from firsttoken.kernels.gpu.launch import DENSE, Op, Product, fits_groups, group_of, quant_tile_rows

MATVEC_ROWS = 4  # the most rows that `matvec` is written for
DOT_ROWS = range(2, 65)  # rows that `rows_dot` is tried for
QUANT_ROWS = 64  # the most that `quant_dot` and `quant_pairs` are tried for
_MATVEC_REGISTERS = 192  # a thread's, of 255: tiles beyond spill
_DOT_REGISTERS = 128
_QUANT_WORDS = 64  # of a quantised weight that a thread holds
_SEEDS = {  # where the search begins in a form that has no launch yet
    "matvec": {"bn": 2, "bk": 512, "warps": 2, "ahead": 2},
    "dot": {"bn": 64, "bk": 128, "warps": 4, "stages": 4, "prefetch": 256, "splits": 4},
}
_QUANT_SEEDS = {  # by whether rows are few
    True: {"bn": 16, "bk": 128, "warps": 1, "stages": 6, "prefetch": 256, "splits": 2},
    False: {"bn": 64, "bk": 128, "warps": 4, "stages": 3, "prefetch": 256, "splits": 2},
}
_QUANT_FORM_SEEDS = {
    "matvec": {"bn": 4, "bk": 1024, "warps": 1, "ahead": 0},
    "fixed": {"bn": 4, "bk": 1024, "warps": 2, "ahead": 1},
    "pairs": {"bn": 64, "bk": 128, "warps": 4, "stages": 4, "prefetch": 256, "splits": 4},
}
_BITS = {"int4": 4, "int8": 8, "fp8": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One product of a model at a number of rows. n and k are the output's and the input's features."""

    name: str  # "qkv"
    op: Op
    n: int
    k: int
    rows: int
    bias: bool = False
    float_out: bool = False  # the head's logits are float32
    weight: str = DENSE  # its kind, as `QuantLinear.kind` names it

    @property
    def weight_rows(self) -> int:
        return 2 * self.n if self.op == "norm_linear_swiglu" else self.n

    @property
    def weight_bytes(self) -> int:
        """What it must read at least: its weight, of two bytes a value where it is dense, and without scales."""
        bits = 16 if self.weight == DENSE else _bits(self.weight)
        return self.weight_rows * self.k * bits // 8


@dataclass(frozen=True, slots=True)
class Limits:
    """What of a card bounds the launches."""

    shared_bytes: int  # that a program may have
    dependent_launch: bool  # without it there is nothing to prefetch before
    fp8: bool  # whether its matrix units multiply FP8


def candidates(job: Job, limits: Limits) -> list[Product]:
    """Every launch worth a measurement: of the right form, dividing the shape, within registers and shared memory."""
    return [product for product in _all(job, limits) if why_impossible(product) is None]


def library(job: Job) -> Product:
    """The library's product, which always runs."""
    return _of(job, "library")


def why_impossible(product: Product) -> str | None:
    """Why the kernels cannot run this launch on any card; None where they can."""
    p = product
    if min(p.n, p.k, p.rows) < 1:
        return "n, k and rows are at least 1"
    if p.form == "library":
        return None
    if not all(_power_of_two(value) for value in (p.bn, p.bk, p.warps)) or p.warps > 32:
        return "bn, bk and warps are powers of two, and warps at most 32"
    if p.weight != DENSE:
        return _why_not_quantised(p)
    if p.form in ("fixed", "pairs"):
        return f"{p.form} multiplies quantised weights alone"
    if p.form == "matvec":
        if p.rows > MATVEC_ROWS or not 1 <= p.ahead <= 3:
            return f"matvec has at most {MATVEC_ROWS} rows, and is 1 to 3 tiles ahead"
        return None
    if p.rows not in range(1, DOT_ROWS.stop) or min(p.bn, p.bk) < 16 or not 1 <= p.stages <= 8:
        return f"dot has at most {DOT_ROWS.stop - 1} rows, tiles of 16 and more, and 1 to 8 stages"
    if p.splits < 1 or (p.splits > 1 and p.op != "linear_add") or p.k % (p.splits * p.bk):
        return "dot splits linear_add alone, and k is a multiple of splits * bk"
    if p.prefetch and (p.prefetch < 64 or not _power_of_two(p.prefetch) or p.prefetch > p.k // p.splits):
        return "prefetch is 0, or a power of two from 64 up that a part of k holds"
    return None


def _bits(weight: str) -> int:
    return _BITS[weight.split("-")[0]]


def _why_not_quantised(p: Product) -> str | None:
    if p.form == "matvec":
        if p.rows > 1 or p.ahead not in (0, 1) or p.bk * _bits(p.weight) < 128:
            return "a quantised matvec has one row, tiles of 16 bytes and more, and is 0 or 1 tiles ahead"
        return None
    if p.form == "fixed":
        if p.rows > 1 or p.ahead not in (1, 2) or p.bk * _bits(p.weight) < 128:
            return "fixed has one row, tiles of 16 bytes and more, and is 1 or 2 tiles ahead"
        return None
    if p.form == "pairs" and not (_pairs_take(p.weight, p.k) and p.bk * _bits(p.weight) >= 256):
        return (
            "pairs multiply FP8, and 4 bits in groups that divide k, without offsets, and tiles are 32 bytes and more"
        )
    if p.bn < 16 * p.warps or not 1 <= p.stages <= 8:
        return "dot and pairs of a quantised weight have 16 output features a warp and more, and 1 to 8 stages"
    fits = fits_groups(p.weight, p.k, p.bk) if p.form == "dot" else group_of(p.weight, p.k) % p.bk == 0
    if p.splits < 1 or p.bk < 32 or not fits or p.k % (p.splits * p.bk):
        return "bk is 32 and more, divides a part of k and a weight's groups, or of integers in dot holds several"
    row = p.k * _bits(p.weight) // 8 // p.splits
    if p.prefetch and (p.prefetch < 128 or not _power_of_two(p.prefetch) or p.prefetch > row):
        return "prefetch is 0, or a power of two from 128 bytes up that a part of k holds"
    return None


def _pairs_take(weight: str, k: int) -> bool:
    """Whether pairs of E4M3 numbers can be multiplied with this kind of weight."""
    group = group_of(weight, k)
    return weight.startswith("fp8") or (
        weight.startswith("int4") and not weight.endswith("offsets") and group < k and k % group == 0
    )


def nearest(untried: Iterable[Product], best: Mapping[str, Product], count: int) -> list[Product]:
    """The `count` launches that differ least from the best so far of their form, or from where a form's search begins.

    Good launches lie close together, so that a search that is cut off has seen the likely ones.
    """
    return sorted(untried, key=lambda product: (_distance(product, best), _key(product)))[:count]


def _all(job: Job, limits: Limits) -> Iterator[Product]:
    # Weight tiles that a program has at once
    held = 2 if job.op == "norm_linear_swiglu" else 1
    if job.weight != DENSE:
        yield from _quantised(job, limits, held)
        return
    if job.rows <= MATVEC_ROWS:
        for bn, bk, warps, ahead in itertools.product((1, 2, 4, 8), (256, 512, 1024), (1, 2, 4), (1, 2, 3)):
            values = bn * bk / (32 * warps)  # of a tile, a thread
            if bk <= job.k and values >= 4 and values * held * (job.rows + ahead / 2) <= _MATVEC_REGISTERS:
                yield _of(job, "matvec", bn=bn, bk=bk, warps=warps, ahead=ahead)
    if job.rows not in DOT_ROWS:
        return
    padded = max(16, 1 << (job.rows - 1).bit_length())
    norm = job.op != "linear_add"
    splits_of = (1,) if norm else (1, 2, 4, 8)
    prefetches = (0, 256) if limits.dependent_launch else (0,)
    for bn, bk, warps, stages in itertools.product((16, 32, 64), (64, 128, 256), (2, 4), (3, 4, 5)):
        stage = 2 * bk * (bn * held + padded * (2 if norm else 1))  # bytes; the last stage may stay in registers
        registers = (bn * padded * held + (padded * bk if norm else 0)) / (32 * warps)
        if job.n % bn or (stages - 1) * stage > limits.shared_bytes or registers > _DOT_REGISTERS:
            continue
        for splits, prefetch in itertools.product(splits_of, prefetches):
            yield _of(job, "dot", bn=bn, bk=bk, warps=warps, stages=stages, splits=splits, prefetch=prefetch)


def _quantised(job: Job, limits: Limits, held: int) -> Iterator[Product]:
    if job.rows > QUANT_ROWS:
        return
    padded, bits = quant_tile_rows(job.rows), _bits(job.weight)
    if job.rows == 1:  # on an H200 1.10 and 1.31 ms a step with FP8, against 1.61 by the matrix units
        for bn, size, warps, ahead in itertools.product((1, 2, 4, 8), (256, 512, 1024), (1, 2, 4), (0, 1)):
            words, bk = bn * size // (128 * warps), size * 8 // bits  # a thread's; size is bytes
            if bk <= job.k and words >= 4 and words * held * (1 + ahead) <= _QUANT_WORDS:
                yield _of(job, "matvec", bn=bn, bk=bk, warps=warps, ahead=ahead)
        for bn, size, warps, ahead in itertools.product(
            (2, 4, 8, 16), (256, 512, 1024, 2048, 4096), (1, 2, 4, 8), (1, 2)
        ):
            words, bk = bn * size // (128 * warps), size * 8 // bits
            enough = bk < 2 * job.k if ahead == 1 else 2 * bk < job.k  # tiles
            if enough and 4 <= words * held <= _QUANT_WORDS // ahead:
                yield _of(job, "fixed", bn=bn, bk=bk, warps=warps, ahead=ahead)
        return
    tiles: dict[str, tuple[tuple[int, ...], ...]] = {
        "dot": ((16, 32, 64, 128), (32, 64, 128, 256), (1, 2, 4), (3, 4, 6, 8))
    }
    if limits.fp8:
        tiles["pairs"] = ((64, 128), (64, 128, 256), (4, 8), (3, 4, 6))
    for form, ranges in tiles.items():
        prefetches: tuple[int, ...] = (0,)
        if limits.dependent_launch:
            prefetches = (0, 256, 512, 1024) if form == "pairs" else (0, 256)
        for bn, bk, warps, stages in itertools.product(*ranges):
            stage = bk * (bn * held * bits // 8 + 2 * padded)
            registers = bn * padded * held / (32 * warps)  # pairs have, and may have, twice as many
            if job.n % bn or (stages - 1) * stage > limits.shared_bytes or registers > _DOT_REGISTERS / 2:
                continue
            for splits, prefetch in itertools.product((1, 2, 4, 8), prefetches):
                yield _of(job, form, bn=bn, bk=bk, warps=warps, stages=stages, splits=splits, prefetch=prefetch)


def _of(job: Job, form: str, **shape: int) -> Product:
    return Product(op=job.op, n=job.n, k=job.k, rows=job.rows, form=form, weight=job.weight, **shape)  # type: ignore[arg-type]


def _distance(product: Product, best: Mapping[str, Product]) -> float:
    """Doublings of tiles, warps and splits, and steps of the rest, between a launch and where its form stands."""
    if product.weight == DENSE:
        seed = _SEEDS[product.form]
    else:
        seed = _QUANT_SEEDS[product.rows <= 16] if product.form == "dot" else _QUANT_FORM_SEEDS[product.form]
    start = best.get(product.form) or replace(product, **seed)  # type: ignore[arg-type]  # the fields that are numbers
    doublings = [
        (product.bn, start.bn),
        (product.bk, start.bk),
        (product.warps, start.warps),
        (product.splits, start.splits if product.op == "linear_add" or product.weight != DENSE else 1),
    ]
    steps = abs(product.ahead - start.ahead) + abs(product.stages - start.stages)
    return sum(abs(math.log2(a / b)) for a, b in doublings) + steps + (product.prefetch != start.prefetch)


def _key(product: Product) -> tuple[int, ...]:
    """An order among equals that does not change from run to run."""
    p = product
    return p.bn, p.bk, p.warps, p.splits, p.ahead, p.stages, p.prefetch


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0
