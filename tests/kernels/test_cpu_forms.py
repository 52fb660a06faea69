"""Low-bit CPU weights: what they hold, bit for bit where a file's blocks are kept."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.cpu_cases import Part, dense_part, gguf_part

from firsttoken.kernels.cpu_forms import CpuLinear, CpuLinears, Form, make_cpu_linear
from firsttoken.kernels.cpu_ops import CpuKernels
from firsttoken.kernels.linear import DenseLinear


def low_bit(parts: list[Part], form: Form, kernels: CpuKernels) -> CpuLinear:
    linear = make_cpu_linear(parts, form, kernels)
    assert isinstance(linear, CpuLinear)
    return linear


@pytest.mark.parametrize(("kind", "bits"), [("Q4_0", 4), ("Q4_1", 4), ("Q8_0", 8)])
def test_gguf_blocks_are_kept_bit_for_bit(kernels: CpuKernels, kind: str, bits: int) -> None:
    parts = [gguf_part(kind, 48, 96), gguf_part(kind, 21, 96), gguf_part(kind, 5, 96)]
    linear = low_bit(parts, "keep", kernels)
    assert (linear.bits, linear.out_features, linear.in_features) == (bits, 74, 96)
    assert torch.equal(linear.dequantize(), torch.cat([part.dequantize() for part in parts]))


def test_parts_of_different_types_become_int8(kernels: CpuKernels) -> None:
    parts = [gguf_part("Q4_1", 32, 64), gguf_part("Q8_0", 32, 64), gguf_part("Q5_0", 16, 64)]
    linear = low_bit(parts, "keep", kernels)
    assert linear.bits == 8
    truth = torch.cat([part.dequantize() for part in parts])
    assert (linear.dequantize() - truth).abs().max() < truth.abs().max() / 127
    assert torch.equal(linear.dequantize()[32:64], truth[32:64])  # Q8_0 needs no rounding of its own


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8_is_within_half_a_step_of_the_float_weight(kernels: CpuKernels, dtype: torch.dtype) -> None:
    part = dense_part(37, 96, dtype)
    error = (low_bit([part], "int8", kernels).dequantize() - part.dequantize()).view(37, 3, 32).abs()
    step = part.dequantize().view(37, 3, 32).abs().amax(-1, keepdim=True) / 127
    assert (error <= 0.502 * step).all()


def test_int4_is_no_worse_than_ggufs_q4_1(kernels: CpuKernels) -> None:
    import gguf

    part = dense_part(64, 256)
    truth = part.dequantize()
    kind = gguf.GGMLQuantizationType.Q4_1
    other = torch.from_numpy(gguf.dequantize(gguf.quantize(truth.numpy(), kind), kind))
    assert (low_bit([part], "int4", kernels).dequantize() - truth).norm() < (other - truth).norm()


@pytest.mark.parametrize("form", ["int4", "int8"])
def test_constant_and_zero_groups_survive_rounding(kernels: CpuKernels, form: Form) -> None:
    weight = torch.cat([torch.zeros(1, 32), torch.full((1, 32), 0.75), torch.full((1, 32), -3.0)])
    linear = low_bit([Part((3, 32), tensor=weight)], form, kernels)
    assert torch.allclose(linear.dequantize(), weight, rtol=1e-2)


def test_rows_are_the_embedding_of_a_tied_head(kernels: CpuKernels) -> None:
    linear = low_bit([gguf_part("Q8_0", 50, 64)], "keep", kernels)
    ids = torch.tensor([0, 49, 7, 7])
    assert torch.equal(linear.rows(ids), linear.dequantize()[ids])


def test_the_head_of_an_int4_model_is_int8(kernels: CpuKernels) -> None:
    factory = CpuLinears(kernels, "int4")
    body, head = factory("model.layers.0.o", [dense_part(16, 32)]), factory("lm_head", [dense_part(16, 32)])
    assert isinstance(body, CpuLinear)
    assert isinstance(head, CpuLinear)
    assert (body.bits, head.bits) == (4, 8)


def test_inputs_that_32_does_not_divide_stay_dense(kernels: CpuKernels) -> None:
    part = dense_part(16, 40)
    linear = make_cpu_linear([part], "int4", kernels)
    assert isinstance(linear, DenseLinear)
    assert torch.equal(linear.dequantize(), part.dequantize())


def test_without_compiled_kernels_weights_stay_dense() -> None:
    bias = torch.randn(16)
    linear = CpuLinears(None, "keep")("model.layers.0.o", [dense_part(16, 64)], bias)
    assert isinstance(linear, DenseLinear)
    assert linear.bias is not None
    assert torch.equal(linear.bias, bias)


def test_num_bytes_counts_scales_and_bias(kernels: CpuKernels) -> None:
    linear = make_cpu_linear([gguf_part("Q4_1", 32, 64)], "keep", kernels, torch.zeros(32))
    assert linear.num_bytes == 32 * 2 * 20 + 32 * 4
