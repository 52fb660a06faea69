"""Products with quantised weights in the Triton kernels, against the widened weight in float64: as test_gpu_kernels."""

from __future__ import annotations

import itertools
import os
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.kernels.gpu_numbers import DEVICE, DTYPE, INTERPRETED, assert_near, random, relative_error
from torch import Tensor

from firsttoken.kernels import reference
from firsttoken.kernels.linear import DenseLinear, Norm
from firsttoken.kernels.quant_linear import QuantLinear, pack
from firsttoken.kernels.quant_round import round_weight

pytest.importorskip("triton")

from firsttoken.kernels.gpu import ops
from firsttoken.kernels.gpu.candidates import Job, why_impossible
from firsttoken.kernels.gpu.card_facts import CardFacts, imagined
from firsttoken.kernels.gpu.launch import DENSE, Op, Product, Table, default_product
from firsttoken.kernels.gpu.launch_table import launching_by, table_for
from firsttoken.kernels.gpu.measured_product import operands
from firsttoken.kernels.gpu.ops import picked
from firsttoken.kernels.gpu.pair_product import pair_rows
from firsttoken.kernels.gpu.quant_product import fp8_product, fp8_rows, has_fp8_product, widened
from firsttoken.kernels.gpu.search import ERROR_BOUND, FP8_ERROR_BOUND

HOPPER = CardFacts(name="NVIDIA H200", capability=(9, 0), processors=132, shared_bytes=227 * 1024)
BOUND = 2e-5 if INTERPRETED else 8e-3  # of the relative error
# Three bits of mantissa leave 0.026. Triton's interpreter also loses the carry of a mantissa that is rounded up to two.
FP8_BOUND = 0.15 if INTERPRETED else 0.04

KINDS = [
    "fp8-row",
    "fp8-128x128",
    "int8-128",
    "int8-32-offsets",
    "int8-64-points",
    "int4-32",
    "int4-32-offsets",
    "int4-128",
    "int4-128-points",
    "int4-row",
]


@pytest.fixture(autouse=True)
def _fresh_numbers() -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    torch.manual_seed(seed)
    print(f"seed {seed}")  # shown where a test fails


def weight_of(kind: str, out: int, width: int, *, bias: bool = False, dtype: torch.dtype = DTYPE) -> QuantLinear:
    """A random weight [out, width] of a kind; every value of its words occurs."""
    form, group, *zero = kind.split("-")
    bias_of = random(out, dtype=dtype) if bias else None
    if form == "fp8":
        blocks = {"group": 128, "rows": 128} if group == "128x128" else {}
        made = round_weight(torch.randn(out, width, device=DEVICE) / width**0.5, "fp8", **blocks)
        return QuantLinear("fp8", made.data, made.scale, None, made.group, made.rows, bias_of)
    bits, size = (4, 8)[form == "int8"], width if group == "row" else int(group)
    values = torch.randint(2**bits, (out, width), dtype=torch.uint8, device=DEVICE)
    shape = (out, -(-width // size))
    scale = (torch.rand(shape, device=DEVICE) + 0.5).to(torch.float16) / width**0.5 / 2 ** (bits - 1)
    points: Tensor | None = None
    if zero == ["points"]:
        points = torch.randint(2**bits, shape, dtype=torch.uint8, device=DEVICE)
    elif zero == ["offsets"]:
        points = torch.randn(shape, dtype=torch.float16, device=DEVICE) / width**0.5
    return QuantLinear("int8" if form == "int8" else "int4", pack(values, bits), scale, points, size, 1, bias_of)


def _skip_without_fp8() -> None:
    if not INTERPRETED and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this card does not multiply FP8")


def _skip_without_fp8_products() -> None:
    _skip_without_fp8()
    if INTERPRETED and torch.__version__.startswith("2.11."):
        pytest.skip("torch 2.11 multiplies FP8 with a scale a row on a GPU alone")


def _wide(linear: QuantLinear) -> DenseLinear:
    return DenseLinear(linear.dequantize().double(), None if linear.bias is None else linear.bias.double())


def _check_products(
    kind: str, rows: int, *, k: int, n: int, bias: bool = False, dtype: torch.dtype = DTYPE, **how: Any
) -> None:
    x, residual = random(rows, k, dtype=dtype), random(rows, n, dtype=dtype)
    norm = Norm((torch.rand(k, device=DEVICE) + 0.5).to(dtype), 1e-6)
    wide = Norm(norm.weight.double(), norm.eps)
    plain, paired = (weight_of(kind, out, k, bias=bias, dtype=dtype) for out in (n, 2 * n))
    splits, bound = how.pop("splits", 1), how.pop("bound", BOUND)

    def launch(op: Op) -> Product:
        return Product(op=op, n=n, k=k, rows=rows, weight=kind, splits=splits if op == "linear_add" else 1, **how)

    out = ops.norm_linear(x, norm, plain, torch.float32, launch=launch("norm_linear"))
    exact = reference.norm_linear(x.double(), wide, _wide(plain))
    assert_near(out, exact, reference.norm_linear(x, norm, plain), bound)
    out = ops.norm_linear_swiglu(x, norm, paired, launch=launch("norm_linear_swiglu"))
    exact = reference.norm_linear_swiglu(x.double(), wide, _wide(paired))
    assert_near(out, exact, reference.norm_linear_swiglu(x, norm, paired), bound)
    expected = reference.linear_add(x.double(), _wide(plain), residual.double())
    assert relative_error(ops.linear_add(x, plain, residual, launch=launch("linear_add")), expected) < bound


@pytest.mark.parametrize(
    ("kind", "rows"),
    [*zip(KINDS, itertools.cycle((1, 3, 8, 17))), ("int4-128-points", 1), ("int4-128-points", 8), ("fp8-row", 17)],
)
def test_quant_dot_multiplies_every_kind_of_weight(kind: str, rows: int) -> None:
    n = 72 if kind == "fp8-128x128" else 21  # the pair's up rows begin in mid-block
    _check_products(kind, rows, k=256, n=n, bias=rows == 3, form="dot", bn=32, bk=64, warps=2, stages=3)


@pytest.mark.parametrize(
    ("kind", "ahead"), [*zip(KINDS, itertools.cycle((0, 1))), ("fp8-row", 1), ("int4-128-points", 1)]
)
def test_quant_matvec_multiplies_every_kind_of_weight(kind: str, ahead: int) -> None:
    n = 72 if kind == "fp8-128x128" else 21  # the pair's up rows begin in mid-block
    k = 384 if ahead else 256  # the last of three tiles of 256 is half empty where four bits are read ahead
    bk = 256 if ahead else 128
    _check_products(kind, 1, k=k, n=n, bias=ahead == 1, form="matvec", bn=8 if n == 21 else 32, bk=bk, ahead=ahead)


@pytest.mark.parametrize(
    ("kind", "ahead"), [*zip(KINDS, itertools.cycle((1, 2))), ("fp8-row", 2), ("int4-128-points", 2)]
)
def test_activations_in_fixed_point_give_the_same_products(kind: str, ahead: int) -> None:
    n = 72 if kind == "fp8-128x128" else 21
    bound = 1e-3 if INTERPRETED else BOUND
    tile: dict[str, Any] = {"bn": 8 if n == 21 else 32, "bk": 256, "ahead": ahead}
    for k in (384, 768, 1152):  # two tiles, the last half empty, where nothing can be further ahead; three; and five
        _check_products(kind, 1, k=k, n=n, bias=True, bound=bound, form="fixed", **tile)


@pytest.mark.parametrize("kind", KINDS)
def test_activations_in_float16_run_by_every_form_that_takes_them(kind: str) -> None:
    """What cards without bfloat16, and checkpoints that were saved in float16, compute in."""
    n, half = 72 if kind == "fp8-128x128" else 21, torch.float16
    bk = 32 if "32" in kind else 64
    for ahead in (0, 1):
        _check_products(kind, 1, k=384, n=n, dtype=half, bound=8e-3, form="matvec", bn=8, bk=256, ahead=ahead)
    _check_products(kind, 8, k=256, n=n, dtype=half, bound=8e-3, form="dot", bn=32, bk=bk, warps=2, stages=3)


@pytest.mark.parametrize(("rows", "form"), [(1, "fixed"), (5, "pairs")])
def test_launches_that_were_measured_with_bfloat16_alone_are_not_picked_for_float16(rows: int, form: Any) -> None:
    launch = Product(op="linear_add", n=64, k=256, rows=rows, weight="fp8-row", form=form, bn=64, bk=256)
    weight = weight_of("fp8-row", 64, 256)
    with launching_by(Table(card=HOPPER.name, measured="", products=(launch,))), imagined(HOPPER):
        of = {
            dtype: picked(torch.empty(rows, 256, dtype=dtype, device="meta"), "linear_add", 64, weight)
            for dtype in (torch.bfloat16, torch.float16)
        }
    assert of == {
        torch.bfloat16: launch,
        torch.float16: default_product("linear_add", 64, 256, rows, "fp8-row", fixed=False),
    }
    assert of[torch.float16].form == ("matvec" if rows == 1 else "dot")


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("fp8-row", 3),
        ("fp8-128x128", 16),
        ("fp8-128x128", 2),
        ("int4-64", 17),
        ("int4-128", 8),
        ("int4-128-points", 5),
        ("fp8-row", 70),
    ],
)
def test_activations_in_pairs_of_e4m3_give_the_same_products(kind: str, rows: int, splits: int) -> None:
    _skip_without_fp8()
    n = 21
    if kind == "fp8-128x128":
        n = 72 if rows == 16 else 128  # in 128 all of a tile's rows share their scales
    k = 2560 if rows == 3 else 256  # a thread has one input of 256, and several of 2560
    # bfloat16 is taken apart exactly; the interpreter's float32 is rounded to it first
    shape: dict[str, Any] = {"bn": 64, "bk": 64, "warps": 4, "stages": 3, "splits": splits}
    shape["prefetch"] = 0 if kind.startswith("int4") else 128
    launch = Product(op="linear_add", n=n, k=k, rows=min(rows, 64), weight=kind, form="pairs", **shape)
    assert why_impossible(launch) is None
    _check_products(kind, rows, k=k, n=n, bias=rows == 3, bound=8e-3, form="pairs", **shape)


def test_what_is_no_number_stays_none_in_pairs() -> None:
    _skip_without_fp8()
    x = torch.randn(4, 256, device=DEVICE).bfloat16()
    x[1, 7], x[2, 8] = float("nan"), float("inf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the interpreter's, of such numbers
        _, powers, _ = pair_rows(x, None, padded=4, tile=0, pdl=False)
    assert powers.isnan().tolist() == [False, True, True, False]


@pytest.mark.gpu
@pytest.mark.skipif(INTERPRETED, reason="races show on a GPU only, in shapes that keep many tiles under way")
def test_measured_launches_are_right_at_the_shapes_they_were_measured_for() -> None:
    for product in table_for("NVIDIA H200").products:
        if product.weight != DENSE:
            job = Job(name="", op=product.op, n=product.n, k=product.k, rows=product.rows, weight=product.weight)
            bound = FP8_ERROR_BOUND if product.form == "library" else ERROR_BOUND
            assert operands(job, torch.device(DEVICE), DTYPE).error(product) < bound, product


def test_a_number_as_a_pair_is_what_bfloat16_has_of_it() -> None:
    _skip_without_fp8()
    x = torch.randn(5, 2560, device=DEVICE).bfloat16()
    x[0] = 0.0
    x[1] *= 1e-20
    x[2, ::2] *= 2.0**-16  # far below the row's largest
    pairs, powers, sums = pair_rows(x, None, padded=8, tile=64, pdl=False)
    first, left = pairs.view(torch.uint8).view(torch.float8_e4m3fn).float().unbind(1)
    back = (first + left / 16) * powers[:, None]
    assert torch.equal(back[5:], torch.zeros_like(back[5:]))
    wide = x.float()
    error, most = (back[:5] - wide).abs(), wide.abs().amax(dim=1, keepdim=True)
    assert torch.all(error <= most * 2.0 ** (-18 if INTERPRETED else -20))
    assert not error[wide.abs() > most * 2.0**-12].any(), "nearly all are exact"
    torch.testing.assert_close(sums[:5] * powers[:5, None], wide.view(5, -1, 64).sum(2), rtol=1e-4, atol=1e-4)


def test_a_tile_may_be_a_part_of_a_group_or_all_of_a_row() -> None:
    for bk in (32, 128):
        _check_products("int4-128-points", 2, k=384, n=16, form="dot", bn=16, bk=bk, warps=1, stages=2)
    _check_products("int4-row", 1, k=128, n=16, form="dot", bn=16, bk=128, warps=1, stages=2)


@pytest.mark.parametrize("kind", ["int8-64-points", "fp8-row"])
@pytest.mark.parametrize("splits", [1, 2])
def test_more_rows_than_a_tile_has_take_several(kind: str, splits: int) -> None:
    _check_products(kind, 70, k=128, n=8, form="dot", bn=16, bk=64, warps=1, stages=2, splits=splits)


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_is_widened_to_what_it_stands_for(kind: str) -> None:
    weight = weight_of(kind, 20, 544 if kind == "int8-128" else 96, bias=True)
    dense = widened(weight, torch.float32)
    torch.testing.assert_close(dense.weight, weight.dequantize(), rtol=1e-5, atol=1e-6)
    assert dense.bias is weight.bias


def test_every_e4m3_value_is_read_right() -> None:
    codes = torch.arange(256, dtype=torch.uint8, device=DEVICE)
    numbers = codes[~codes.view(torch.float8_e4m3fn).float().isnan()]
    values = torch.nn.functional.pad(numbers, (0, 256 - len(numbers)))[None].contiguous()
    weight = QuantLinear("fp8", pack(values, 8), torch.ones(1, 1, device=DEVICE), None, 256)
    assert torch.equal(widened(weight, torch.float32).weight, values.view(torch.float8_e4m3fn).float())


def test_library_products_widen_what_they_cannot_multiply() -> None:
    for kind in ("fp8-128x128", "int4-128-points"):
        _check_products(kind, 5, k=128, n=16, bias=True, form="library")
    assert not has_fp8_product(random(5, 256), weight_of("fp8-128x128", 64, 256))


@pytest.mark.parametrize("bias", [False, True])
def test_rows_are_rounded_to_fp8_for_a_product_in_fp8(bias: bool) -> None:
    _skip_without_fp8_products()
    x = (torch.randn(20, 96, device=DEVICE) * torch.logspace(-2, 2, 20, device=DEVICE)[:, None]).bfloat16()
    added = torch.randn(48, device=DEVICE).bfloat16() if bias else None
    weight = replace(weight_of("fp8-row", 48, 96), bias=added)
    norm = Norm((torch.rand(96, device=DEVICE) + 0.5).bfloat16(), 1e-6)
    dense = DenseLinear(weight.dequantize().double(), None if weight.bias is None else weight.bias.double())
    plain = fp8_product(x, weight)
    assert plain.dtype == torch.bfloat16
    assert relative_error(plain, reference.linear(x.double(), dense)) < FP8_BOUND
    expected = reference.norm_linear(x.double(), Norm(norm.weight.double(), norm.eps), dense)
    assert relative_error(fp8_product(x, weight, norm), expected) < FP8_BOUND


def test_a_row_in_fp8_does_not_depend_on_its_neighbours() -> None:
    _skip_without_fp8_products()
    x, weight = torch.randn(20, 96, device=DEVICE).bfloat16(), weight_of("fp8-row", 48, 96)
    loud = x.clone()
    loud[1:] *= 100
    assert torch.equal(fp8_product(x, weight)[0], fp8_product(loud, weight)[0])


@pytest.mark.parametrize("group", [0, 128])
def test_rows_are_rounded_to_fp8_with_a_scale_for_each_group(group: int) -> None:
    x = random(5, 640)
    x[3] *= 100
    norm = Norm((torch.rand(640, device=DEVICE) + 0.5).to(DTYPE), 1e-6)
    for given in (None, norm):
        rows, scales = fp8_rows(x, given, group=group, padded=8)
        exact = x.double() if given is None else reference.rms_norm(x.double(), Norm(norm.weight.double(), norm.eps))
        wide = exact.view(5, -1, group or 640)
        assert scales.shape == (8, wide.shape[1])
        assert scales.stride()[0] == 1  # as the library wants them
        torch.testing.assert_close(scales[:5].double(), wide.abs().amax(2) / 448.0, rtol=2e-2, atol=0.0)
        found = rows[:5].float().double().view(wide.shape) * scales[:5, :, None].double()
        assert relative_error(found, wide) < FP8_BOUND


def test_a_product_in_fp8_takes_blocks_where_the_library_has_them() -> None:
    if DEVICE == "cpu" or torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the library multiplies FP8 in blocks on compute capability 9.0 alone")
    for rows, bias in ((1, False), (5, True), (64, False), (131, False)):  # some that four does not divide
        x, weight = random(rows, 2560), weight_of("fp8-128x128", 384, 2560, bias=bias)
        assert has_fp8_product(x, weight)
        norm = Norm((torch.rand(2560, device=DEVICE) + 0.5).to(DTYPE), 1e-6)
        wide = _wide(weight)
        assert relative_error(fp8_product(x, weight), reference.linear(x.double(), wide)) < FP8_BOUND
        expected = reference.norm_linear(x.double(), Norm(norm.weight.double(), norm.eps), wide)
        assert relative_error(fp8_product(x, weight, norm), expected) < FP8_BOUND
    assert not has_fp8_product(x, weight_of("fp8-128x128", 384, 2560 + 128))  # 21 blocks: it would read others' scales


@pytest.mark.parametrize("kind", ["fp8-row", "int4-128-points", "int8-128"])
def test_few_outputs_of_several_rows_are_split_so_that_enough_programs_read(kind: str) -> None:
    for rows in (2, 16, 17, 64):
        down = default_product("linear_add", 2560, 9728, rows, kind)
        assert (down.form, down.splits) == ("dot", 4)
        assert why_impossible(down) is None
        assert default_product("norm_linear_swiglu", 9728, 2560, rows, kind).splits == 1
    assert default_product("linear_add", 2560, 9728, 128, kind).splits == 1
    assert default_product("linear_add", 2560, 9728, 16, kind).bn == (32 if kind == "int8-128" else 16)


@pytest.mark.parametrize("kind", ["fp8-row", "int4-128-points", "int8-32"])
def test_an_unmeasured_card_gets_a_launch_for_every_number_of_rows(kind: str) -> None:
    pick = table_for("NVIDIA GeForce RTX 9999").pick
    forms = [pick("norm_linear", 6144, 2560, rows, kind).form for rows in (1, 2, 3, 128, 129)]
    assert forms == ["fixed", "dot", "dot", "dot", "library"]
    assert default_product("norm_linear", 6144, 2560, 1, kind, fixed=False).form == "matvec"
    assert all(
        why_impossible(pick("linear_add", n, k, 1, kind)) is None for n, k in ((8, 64), (2560, 9728), (8192, 96))
    )
    assert pick("norm_linear", 151936, 2560, 256, kind).form == "dot", "a head is too large to be widened"
    assert pick("norm_linear", 100, 80, 8, kind).form == "library", "80 is no multiple of a tile"
