"""Products of low-bit CPU weights: against exact arithmetic on the same rounded values, and beside neighbours."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.kernels.cpu_cases import dense_part, rounded

from firsttoken.kernels import reference
from firsttoken.kernels.cpu_forms import CpuLinear, Form, make_cpu_linear
from firsttoken.kernels.cpu_ops import CpuKernels
from firsttoken.kernels.linear import Norm
from firsttoken.kernels.linear_add import linear_add
from firsttoken.kernels.norm_linear import norm_linear
from firsttoken.kernels.norm_linear_swiglu import norm_linear_swiglu

SHAPES = [(16, 32), (50, 96), (192, 576), (576, 1536), (37, 64)]
ROWS = [1, 2, 3, 5, 8, 13, 70]


def make(kernels: CpuKernels, form: Form, out: int, inputs: int, *, bias: bool = True) -> CpuLinear:
    linear = make_cpu_linear([dense_part(out, inputs)], form, kernels, torch.randn(out) if bias else None)
    assert isinstance(linear, CpuLinear)
    return linear


def random_norm(inputs: int) -> Norm:
    return Norm(torch.rand(inputs) + 0.5, 1e-5)


def product(x: torch.Tensor, linear: CpuLinear) -> torch.Tensor:
    """Exact on the rounded activations, float64."""
    out = rounded(x) @ linear.dequantize().double().T
    return out if linear.bias is None else out + linear.bias.double()


@pytest.mark.parametrize("form", ["int4", "int8"])
@pytest.mark.parametrize(("out", "inputs"), SHAPES)
def test_norm_linear_is_exact_on_rounded_activations(kernels: CpuKernels, form: Form, out: int, inputs: int) -> None:
    linear, norm = make(kernels, form, out, inputs), random_norm(inputs)
    for rows in ROWS:
        x = torch.randn(rows, inputs)
        normed = reference.rms_norm(x, norm)
        got = norm_linear(x, norm, linear)
        truth = normed.double() @ linear.dequantize().double().T
        assert got.shape == (rows, out)
        # a value next to a rounding boundary may fall to the other side of it: hence not tighter
        assert (got - product(normed, linear)).abs().max() < 2e-3 * truth.abs().max()
        exact = truth if linear.bias is None else truth + linear.bias.double()
        assert (got - exact).norm() < 0.01 * exact.norm()


@pytest.mark.parametrize("form", ["int4", "int8"])
@pytest.mark.parametrize(("out", "inputs"), SHAPES)
def test_linear_add_adds_the_residual(kernels: CpuKernels, form: Form, out: int, inputs: int) -> None:
    linear = make(kernels, form, out, inputs)
    for rows in ROWS:
        x, residual = torch.randn(rows, inputs), torch.randn(rows, out)
        truth = residual.double() + product(x, linear)
        assert torch.allclose(linear_add(x, linear, residual).double(), truth, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("form", ["int4", "int8"])
@pytest.mark.parametrize("inter", [16, 96, 40])
@pytest.mark.parametrize("bias", [False, True])
def test_swiglu_gates_the_upper_half(kernels: CpuKernels, form: Form, inter: int, bias: bool) -> None:
    linear, norm = make(kernels, form, 2 * inter, 64, bias=bias), random_norm(64)
    for rows in ROWS:
        x = torch.randn(rows, 64) * 4
        gate, up = product(reference.rms_norm(x, norm), linear).chunk(2, dim=-1)
        truth = F.silu(gate) * up
        assert (norm_linear_swiglu(x, norm, linear) - truth).abs().max() < 2e-3 * truth.abs().max()


@pytest.mark.parametrize("form", ["int4", "int8"])
def test_a_row_is_the_same_in_any_batch_and_on_any_threads(kernels: CpuKernels, form: Form) -> None:
    linear, gates, norm = make(kernels, form, 90, 576), make(kernels, form, 192, 576), random_norm(576)
    x, residual = torch.randn(700, 576), torch.randn(700, 90)
    kernels.set_threads(1)
    alone = [norm_linear(x[i : i + 1], norm, linear) for i in range(20)]
    whole, gated = norm_linear(x, norm, linear), norm_linear_swiglu(x, norm, gates)
    added = linear_add(x, linear, residual.clone())
    for threads in (1, 2, 3):
        kernels.set_threads(threads)
        for i, row in enumerate(alone):
            assert torch.equal(whole[i : i + 1], row)
        for rows in (1, 4, 7, 9, 40, 700):
            assert torch.equal(norm_linear(x[:rows], norm, linear), whole[:rows])
            assert torch.equal(norm_linear_swiglu(x[:rows], norm, gates), gated[:rows])
            assert torch.equal(linear_add(x[:rows], linear, residual[:rows].clone()), added[:rows])


@pytest.mark.parametrize("form", ["int4", "int8"])
def test_zero_rows_and_zero_activations_work(kernels: CpuKernels, form: Form) -> None:
    linear, norm = make(kernels, form, 32, 64, bias=False), random_norm(64)
    assert norm_linear(torch.zeros(0, 64), norm, linear).shape == (0, 32)
    assert torch.equal(norm_linear(torch.zeros(2, 64), norm, linear), torch.zeros(2, 32))


def test_extreme_weights_do_not_overflow_the_integer_sums(kernels: CpuKernels) -> None:
    for form, low, high in (("int8", -1.0, 1.0), ("int4", 0.0, 1.0)):
        weight = dense_part(16, 64)
        assert weight.tensor is not None
        weight.tensor.copy_(torch.where(torch.rand(16, 64) < 0.1, low, high))
        linear = make_cpu_linear([weight], "int8" if form == "int8" else "int4", kernels)
        assert isinstance(linear, CpuLinear)
        for x in (torch.ones(3, 64), -torch.ones(3, 64)):
            truth = (x.double() @ linear.dequantize().double().T).float()
            assert torch.allclose(linear_add(x, linear, torch.zeros(3, 16)), truth, rtol=1e-5)


def test_strided_and_other_dtypes_are_converted(kernels: CpuKernels) -> None:
    linear, norm = make(kernels, "int8", 32, 64), random_norm(64)
    x = torch.randn(4, 128)[:, ::2]
    assert torch.equal(norm_linear(x, norm, linear), norm_linear(x.contiguous(), norm, linear))
    half = x.to(torch.bfloat16)
    assert torch.equal(norm_linear(half, norm, linear), norm_linear(half.float(), norm, linear))
