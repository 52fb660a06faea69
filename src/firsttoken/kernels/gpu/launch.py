"""Launch shapes: what a measured one says, sane defaults elsewhere. `launch_table` reads the files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from firsttoken.kernels.gpu.card_facts import facts_of

if TYPE_CHECKING:
    import torch

DENSE = "dense"
Op = Literal["norm_linear", "norm_linear_swiglu", "linear_add"]

_MATVEC_ROWS = 2  # of a dense weight, that a matrix-vector kernel is the default for
DOT_ROWS = 16  # the most rows that `rows_dot` pays for: beyond them the library's product is as fast
QUANT_DOT_ROWS = 128  # of a quantised weight: beyond them widening it, or rounding the rows, pays
_LARGE_N = 1 << 16  # output features of a weight that is too large to be widened for a step
_QUANT_DOT_ROWS_LARGE = 512
_SPLIT_N = 4096  # output features up to which a quantised weight's few tiles leave the memory idle
PROGRAMS_PER_SM = 2  # attention programs that fill the card
FEW_ROWS = 8  # single tokens that are bound by latency, not by what they read
_SPARE_SHARED = 4096  # bytes of shared memory for what a kernel keeps beside its tiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """How one product of up to `rows` rows is launched. n and k are the output's and the input's features."""

    op: Op
    n: int
    k: int
    rows: int
    form: Literal["matvec", "fixed", "dot", "pairs", "library"]  # fixed, pairs: what becomes of the activations
    bn: int = 0
    bk: int = 0
    warps: int = 4
    ahead: int = 1  # matvec, fixed: weight tiles under way; of a quantised weight beyond the one that is multiplied
    stages: int = 4  # dot, pairs: pipeline depth
    prefetch: int = 0  # dot, pairs: columns asked for before the wait; of a quantised weight bytes
    splits: int = 1  # parts of k that programs of their own multiply: dot of linear_add, any of quantised weights
    weight: str = DENSE  # the weight's kind, as `QuantLinear.kind` names it


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One card's measured launches."""

    card: str
    measured: str  # when and with what
    products: tuple[Product, ...]
    like: tuple[str, ...] = ()  # how names of other cards with this chip begin, whose launches these are too

    def pick(self, op: Op, n: int, k: int, rows: int, weight: str = DENSE) -> Product:
        """The measured launch of this shape with the fewest rows that suffice, else a default.

        The fewest rows have kernels of their own, which what more rows were measured with is slow beside.
        """
        few = _MATVEC_ROWS if weight == DENSE else 1
        same = [p for p in self.products if (p.op, p.n, p.k, p.weight) == (op, n, k, weight)]
        fitting = [p for p in same if p.rows >= rows and (p.rows <= few) == (rows <= few)]
        if fitting:
            return min(fitting, key=lambda p: p.rows)
        return default_product(op, n, k, rows, weight)


def default_product(op: Op, n: int, k: int, rows: int, weight: str = DENSE, *, fixed: bool = True) -> Product:
    """Shapes that run on every card from compute capability 8.0 up and are near the best on those measured.

    `fixed`: whether one row of a quantised product may be in fixed point, which only bfloat16 gains from.
    """
    if weight != DENSE:
        return _quantised(op, n, k, rows, weight, fixed)
    if rows == 1:
        return Product(op=op, n=n, k=k, rows=1, form="matvec", bn=2, bk=512, warps=2, ahead=2)
    if rows == 2:
        return Product(op=op, n=n, k=k, rows=2, form="matvec", bn=1, bk=512, warps=4, ahead=2)
    if rows <= DOT_ROWS and k % 64 == 0 and op != "linear_add":
        return Product(op=op, n=n, k=k, rows=DOT_ROWS, form="dot", bn=64, bk=64, warps=4, stages=4, prefetch=64)
    return Product(op=op, n=n, k=k, rows=rows, form="library")


def _quantised(op: Op, n: int, k: int, rows: int, weight: str, fixed: bool) -> Product:
    if rows == 1 and fixed:  # in fewer instructions a weight than matvec, on every card that it was compiled for
        inputs = 2 if weight.startswith("int4") else 1  # a byte
        few = op == "linear_add" and n <= _SPLIT_N  # whose programs would be too few to keep the memory busy
        bn, size, warps = 4 if op == "norm_linear_swiglu" else 8, 512, 1
        if few:  # FP8's as an H200 was measured to like it
            bn, size, warps = (2, 2048, 2) if weight.startswith("fp8") else (4, 1024, 2)
        return Product(op=op, n=n, k=k, rows=1, form="fixed", bn=bn, bk=size * inputs, warps=warps, weight=weight)
    if rows == 1:
        bk = 1024 if weight.startswith("int4") else 512  # a warp reads 512 bytes of a row at a time
        return Product(op=op, n=n, k=k, rows=1, form="matvec", bn=4, bk=bk, warps=1, ahead=0, weight=weight)
    most = _QUANT_DOT_ROWS_LARGE if n > _LARGE_N else QUANT_DOT_ROWS
    bk = next((bk for bk in (128, 64, 32) if k % bk == 0 and fits_groups(weight, k, bk)), 0)
    if rows > most or not bk:
        return Product(op=op, n=n, k=k, rows=rows, form="library", weight=weight)
    tile: dict[str, int] = {"bn": 64, "warps": 4, "stages": 3}
    if rows <= 16:
        tile = {"bn": 16, "warps": 1, "stages": 8 if weight.startswith("int4") else 6}
        if weight.startswith("int8"):
            tile = {"bn": 32, "warps": 2, "stages": 4}
    splits = 4 if op == "linear_add" and n <= _SPLIT_N and rows <= 64 and k % (4 * bk) == 0 else 1
    return Product(op=op, n=n, k=k, rows=rows, form="dot", bk=bk, splits=splits, weight=weight, **tile)


def quant_tile_rows(rows: int) -> int:
    """Rows that a program of `quant_dot` or `quant_pairs` multiplies at once: a power of two, 8 to 64."""
    return min(max(8, 1 << (rows - 1).bit_length()), 64)


def fits_groups(weight: str, k: int, bk: int) -> bool:
    """Whether a tile of `quant_dot` with bk inputs is a part of a group, or of integers several whole ones."""
    group = group_of(weight, k)
    return group % bk == 0 or (bk % group == 0 and not weight.startswith("fp8"))


def scales_in_tile(weight: str, k: int, rows: int, bk: int) -> bool:
    """Whether `quant_dot` multiplies groups' scales into its weights, which then are rounded, or into the sums.

    The first takes an instruction a weight, the second some three for each row and group. E4M3's meet the sums.
    """
    group = group_of(weight, k)
    if weight.startswith("fp8") or group >= k:
        return False
    return bk > group or 3 * quant_tile_rows(rows) > bk


def group_of(weight: str, k: int) -> int:
    """How many inputs share a scale in a weight of this kind, of k inputs."""
    group = weight.split("-")[1].split("x")[0]
    return k if group == "row" else int(group)


@dataclass(frozen=True, slots=True)
class RowTile:
    """How single tokens read the cache: tokens a turn, and the turns under way.

    `early` (with dependent launch): what is asked for before the kernel ahead ends. 1: the first turn, into registers;
    2: the first turn, into L2.
    """

    tokens: int
    stages: int
    early: int
    merge: int = 8  # parts of a row that are merged at a time


def fitting_row_tile(shared_bytes: int, head_dim: int, rows: int, *, fp8_cache: bool) -> RowTile:
    """The best tile for so many rows that fits a program's shared memory.

    Few rows are bound by latency. A tile that takes most of the shared memory would keep the programs of the products
    around it from starting early, which then costs more than the longer reads save. An FP8 cache's is half as large.
    """

    def fits(tokens: int, stages: int) -> bool:
        return tokens * stages * head_dim * (2 if fp8_cache else 4) + _SPARE_SHARED <= shared_bytes

    if rows <= FEW_ROWS and not (fp8_cache and fits(128, 3)):
        return RowTile(64, 2, 1)
    early, merge = (2, 16) if fp8_cache else (1 if rows <= 16 else 2, 8)
    for tokens, stages in ((128, 3), (64, 3), (64, 2)):
        if fits(tokens, stages):
            return RowTile(tokens, stages, early, merge)
    return RowTile(32, 2, early, merge)


def row_tile(device: torch.device, head_dim: int, rows: int, *, fp8_cache: bool) -> RowTile:
    """The tile of a device; on a CPU, where kernels are interpreted, a small one."""
    card = facts_of(device)
    if card is None:
        return RowTile(64, 2, 0, 16 if fp8_cache else 8)
    return fitting_row_tile(card.shared_bytes, head_dim, rows, fp8_cache=fp8_cache)


def attention_programs(device: torch.device) -> int:
    """How many attention programs fill the card."""
    card = facts_of(device)
    assert card is not None, "kernels are interpreted without a card"
    return PROGRAMS_PER_SM * card.processors
