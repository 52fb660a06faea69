"""GGUF's Q4_0, Q4_1 and Q8_0 blocks as the GPU's kernels read them, and back: the same numbers in as many bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firsttoken.kernels.quant_forms import QuantForm
from firsttoken.kernels.quant_linear import QuantLinear, pack, unpack

BLOCK = 32  # elements
Q4_0, Q4_1, Q8_0 = 2, 3, 8  # of ggml's enum
KEPT: dict[int, QuantForm] = {Q4_0: "int4", Q4_1: "int4", Q8_0: "int8"}
_BYTES = {Q4_0: 18, Q4_1: 20, Q8_0: 34}


def from_blocks(data: npt.NDArray[np.uint8], ggml_type: int, device: torch.device) -> QuantLinear:
    """Rows of blocks [out, bytes a row] of a type in KEPT, on a device."""
    rows = torch.from_numpy(data).to(device)
    blocks = rows.view(len(rows), -1, _BYTES[ggml_type])
    scale = _halves(blocks[..., :2])
    if ggml_type == Q8_0:
        return QuantLinear("int8", pack((blocks[..., 2:] ^ 128).reshape(len(rows), -1), 8), scale, None, BLOCK)
    offset = _halves(blocks[..., 2:4]) if ggml_type == Q4_1 else None
    nibbles = blocks[..., -16:]
    values = torch.cat([nibbles & 15, nibbles >> 4], dim=-1).reshape(len(rows), -1)  # low halves come first
    return QuantLinear("int4", pack(values, 4), scale, offset, BLOCK)


def to_q4_1(weight: QuantLinear) -> npt.NDArray[np.uint8]:
    """An int4 weight as rows of Q4_1 blocks [out, bytes a row], whose lowest values are rounded to float16."""
    out, repeat = weight.out_features, weight.group // BLOCK
    scale = weight.scale.to(torch.float32)
    zero = torch.full_like(scale, 8.0) if weight.zero is None else weight.zero.to(torch.float32)
    offset = zero if weight.zero is not None and weight.zero.is_floating_point() else -zero * scale
    values = unpack(weight.data, 4).view(out, -1, BLOCK)
    blocks = torch.empty(*values.shape[:2], _BYTES[Q4_1], dtype=torch.uint8)
    for start, grid in ((0, scale), (2, offset)):
        spread = grid.to(torch.float16).repeat_interleave(repeat, 1)[:, : values.shape[1], None].contiguous()
        blocks[..., start : start + 2] = spread.view(torch.uint8)
    blocks[..., 4:] = values[..., :16] | (values[..., 16:] << 4)
    return blocks.view(out, -1).numpy()


def _halves(pairs: Tensor) -> Tensor:
    """The float16 in two bytes of each block: [out, blocks]."""
    return pairs.contiguous().view(torch.float16)[..., 0]
