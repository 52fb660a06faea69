"""The Triton forms of products against the torch reference in float64: interpreted on a CPU, compiled where there is a
GPU."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from tests.kernels.gpu_numbers import (
    BOUND,
    INTERPRETED,
    INTERPRETER,
    assert_near,
    random,
    random_norm,
    relative_error,
    wide_norm,
)

from firsttoken.kernels import reference
from firsttoken.kernels.linear import DenseLinear, Norm

pytest.importorskip("triton", INTERPRETER)

from firsttoken.kernels.gpu import ops
from firsttoken.kernels.gpu.launch import DENSE, Op, Product
from firsttoken.kernels.gpu.launch_table import table_for


@pytest.fixture(autouse=True)
def _fresh_numbers() -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    torch.manual_seed(seed)
    print(f"seed {seed}")  # shown where a test fails


def _linear(out: int, width: int, *, bias: bool) -> DenseLinear:
    return DenseLinear(random(out, width) / width**0.5, random(out) if bias else None)


def _wide_linear(linear: DenseLinear) -> DenseLinear:
    return DenseLinear(linear.weight.double(), None if linear.bias is None else linear.bias.double())


MATVECS = [{"bn": 4, "bk": 64, "ahead": ahead} for ahead in (1, 2, 3)] + [{"bn": 1, "bk": 128, "ahead": 2}]


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", MATVECS, ids=lambda s: f"ahead{s['ahead']}-{s['bn']}x{s['bk']}")
@pytest.mark.parametrize("bias", [False, True])
def test_matvec_gives_every_product_of_a_layer(rows: int, shape: dict[str, int], bias: bool) -> None:
    _check_products(rows, k=200, n=37, bias=bias, form="matvec", **shape)  # neither divides its tile


@pytest.mark.parametrize("rows", [1, 5, 16])
@pytest.mark.parametrize("bn", [16, 64])
@pytest.mark.parametrize("bias", [False, True])
def test_rows_dot_gives_every_product_of_a_layer(rows: int, bn: int, bias: bool) -> None:
    _check_products(rows, k=192, n=72, bias=bias, form="dot", bn=bn, bk=64, stages=2)


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("splits", [2, 3])
def test_a_product_split_along_its_inputs_adds_up(rows: int, splits: int) -> None:
    x, residual, weight = random(rows, 192), random(rows, 72), _linear(72, 192, bias=True)
    expected = reference.linear_add(x.double(), _wide_linear(weight), residual.double())
    for _ in range(2):  # the counters are as they were
        launch = Product(op="linear_add", n=72, k=192, rows=rows, form="dot", bn=16, bk=32, stages=2, splits=splits)
        assert relative_error(ops.linear_add(x, weight, residual, launch=launch), expected) < BOUND


@pytest.mark.gpu
@pytest.mark.skipif(INTERPRETED, reason="races show on a GPU only, in shapes that keep many tiles under way")
@pytest.mark.parametrize("rows", [3, 9, 16])
def test_measured_launches_are_right_at_the_shapes_they_were_measured_for(rows: int) -> None:
    for product in table_for("NVIDIA H200").products:
        if product.weight == DENSE and (product.form == "dot" or product.rows == rows):
            how = {
                name: getattr(product, name) for name in ("bn", "bk", "warps", "ahead", "stages", "prefetch", "splits")
            }
            _check_products(rows, k=product.k, n=min(product.n, 9728), bias=False, form=product.form, **how)


@pytest.mark.parametrize("rows", [17, 65])
def test_library_products_meet_the_same_reference(rows: int) -> None:
    _check_products(rows, k=96, n=40, bias=True, form="library")


def _check_products(rows: int, *, k: int, n: int, bias: bool, **how: Any) -> None:
    x, residual = random(rows, k), random(rows, n)
    norm, plain, paired = random_norm(k), _linear(n, k, bias=bias), _linear(2 * n, k, bias=bias)
    folded = Norm(torch.ones_like(norm.weight), norm.eps, folded=True)

    splits = how.pop("splits", 1)

    def launch(op: Op) -> Product:
        return Product(op=op, n=n, k=k, rows=rows, splits=splits if op == "linear_add" else 1, **how)

    for each in (norm, folded):
        out = ops.norm_linear(x, each, plain, torch.float32, launch=launch("norm_linear"))
        assert out.dtype == torch.float32
        exact = reference.norm_linear(x.double(), wide_norm(each), _wide_linear(plain))
        assert_near(out, exact, reference.norm_linear(x, each, plain))
    out = ops.norm_linear_swiglu(x, norm, paired, launch=launch("norm_linear_swiglu"))
    exact = reference.norm_linear_swiglu(x.double(), wide_norm(norm), _wide_linear(paired))
    assert_near(out, exact, reference.norm_linear_swiglu(x, norm, paired))
    expected = reference.linear_add(x.double(), _wide_linear(plain), residual.double())
    out = ops.linear_add(x, plain, residual, launch=launch("linear_add"))
    assert relative_error(out, expected) < BOUND


def test_the_h200_table_covers_a_decode_step_of_the_4b_model() -> None:
    table = table_for("NVIDIA H200")
    products: list[tuple[Op, int, int]] = [
        ("norm_linear", 6144, 2560),
        ("linear_add", 2560, 4096),
        ("norm_linear_swiglu", 9728, 2560),
        ("linear_add", 2560, 9728),
        ("norm_linear", 151936, 2560),
    ]
    for op, n, k in products:
        assert any((p.op, p.n, p.k, p.rows) == (op, n, k, 1) for p in table.products)
        assert table.pick(op, n, k, 1).form == "matvec"
        assert table.pick(op, n, k, 300).form == "library"


def test_an_unknown_card_gets_launches_that_fit_any_shape() -> None:
    table = table_for("NVIDIA GeForce RTX 9999")
    assert not table.products
    assert table.pick("norm_linear", 100, 96, 1).form == "matvec"
    assert table.pick("norm_linear", 100, 96, 8).form == "library", "96 is no multiple of the tile"
    assert table.pick("norm_linear", 100, 128, 8).form == "dot"
