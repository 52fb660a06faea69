"""The layout of low-bit weights, their stacking, and what rounding costs."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from firsttoken.kernels.kept_blocks import KEPT, from_blocks, to_q4_1
from firsttoken.kernels.quant_forms import BITS, QuantForm
from firsttoken.kernels.quant_linear import QuantLinear, pack, stack, unpack
from firsttoken.kernels.quant_round import round_weight


@pytest.mark.parametrize("bits", [4, 8])
def test_values_come_back_from_their_bytes(bits: int) -> None:
    values = torch.randint(2**bits, (5, 96), dtype=torch.uint8)
    data = pack(values, bits)
    assert data.shape == (5, 96 * bits // 8)
    assert torch.equal(unpack(data, bits), values)


def test_a_byte_holds_inputs_that_are_sixteen_apart() -> None:
    data = pack(torch.arange(64, dtype=torch.uint8)[None] % 16, 4)[0].tolist()
    assert data == [i | i << 4 for i in range(16)] * 2
    data = pack(torch.arange(64, dtype=torch.uint8)[None] // 4, 4)[0].tolist()
    assert data[0] == 0 | 4 << 4
    assert data[16] == 8 | 12 << 4


@pytest.mark.parametrize(("form", "bound"), [("fp8", 0.03), ("int8", 0.008), ("int4", 0.1)])
def test_rounding_leaves_the_error_of_its_bits(form: QuantForm, bound: float) -> None:
    weight = torch.randn(40, 256, generator=torch.Generator().manual_seed(3))
    made = round_weight(weight, form)
    error = float((made.dequantize() - weight).norm() / weight.norm())
    assert bound / 3 < error < bound
    assert made.num_bytes < 40 * 256 * (0.53 if form == "int4" else 1.02)


def test_a_group_of_zeros_and_one_far_value_are_rounded_well() -> None:
    weight = torch.zeros(2, 128)
    weight[1, 5] = 3.0
    for form in BITS:
        torch.testing.assert_close(round_weight(weight, form).dequantize(), weight, rtol=1e-3, atol=1e-6)


def test_blocks_of_fp8_scale_their_own_weights() -> None:
    weight = torch.randn(130, 200)
    weight[128:, 192:] *= 1000
    made = round_weight(weight[:, :192], "fp8", group=128, rows=128)
    assert made.scale.shape == (2, 2)
    assert made.kind == "fp8-128x128"
    torch.testing.assert_close(made.dequantize(), weight[:, :192], rtol=0.07, atol=0.02)


def test_parts_are_stacked_where_their_scales_allow() -> None:
    weights = [torch.randn(rows, 128) for rows in (128, 40, 40)]
    blocks = [round_weight(weight, "fp8", group=128, rows=128) for weight in weights[:2]]
    both = stack(blocks)
    assert both is not None
    assert both.rows == 128  # the first ends where a block does
    assert torch.equal(both.dequantize(), torch.cat([each.dequantize() for each in blocks]))
    turned = stack(blocks[::-1])
    assert turned is not None
    assert turned.rows == 1
    assert torch.equal(turned.dequantize(), torch.cat([each.dequantize() for each in blocks[::-1]]))
    assert stack([blocks[0], round_weight(weights[0], "int8")]) is None


def test_points_in_the_middle_are_written_out_beside_parts_that_have_others() -> None:
    words = pack(torch.randint(16, (2, 32), dtype=torch.uint8), 4)
    plain = QuantLinear("int4", words, torch.ones(2, 1), None, 32)
    pointed = QuantLinear("int4", words, torch.ones(2, 1), torch.full((2, 1), 3, dtype=torch.uint8), 32)
    both = stack([plain, pointed])
    assert both is not None
    assert torch.equal(both.dequantize(), torch.cat([plain.dequantize(), pointed.dequantize()]))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_blocks_of_a_gguf_file_keep_their_numbers_and_their_bits(kind: str) -> None:
    qtype = gguf.GGMLQuantizationType[kind]
    blocks = gguf.quantize(np.random.default_rng(1).standard_normal((7, 96), dtype=np.float32), qtype)
    kept = from_blocks(blocks, int(qtype), torch.device("cpu"))
    assert kept.form == KEPT[int(qtype)]
    assert kept.num_bytes == blocks.nbytes
    assert np.array_equal(kept.dequantize().numpy(), gguf.dequantize(blocks, qtype))
    if kind == "Q4_1":
        assert np.array_equal(to_q4_1(kept), blocks)
