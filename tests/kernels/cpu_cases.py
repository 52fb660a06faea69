"""Random weights and attention batches for the tests of the CPU kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firsttoken.kernels.kept_blocks import KEPT, from_blocks
from firsttoken.kernels.plan import AttentionPlan, KVLayer, Rope
from firsttoken.kernels.quant_forms import QuantForm
from firsttoken.kernels.quant_linear import QuantLinear


@dataclass(frozen=True)
class Part:
    """A weight as a file holds it: dense, or GGUF blocks."""

    shape: tuple[int, ...]
    tensor: Tensor | None = None
    data: npt.NDArray[np.uint8] | None = None
    ggml_type: int | None = None

    @property
    def form(self) -> QuantForm | None:
        return None if self.ggml_type is None else KEPT.get(self.ggml_type)

    def packed(self, device: torch.device) -> QuantLinear:
        assert self.data is not None
        assert self.ggml_type is not None
        return from_blocks(self.data, self.ggml_type, device)

    def dequantize(self) -> Tensor:
        if self.tensor is not None:
            return self.tensor.to(torch.float32)
        import gguf

        assert self.data is not None
        assert self.ggml_type is not None
        return torch.from_numpy(gguf.dequantize(self.data, gguf.GGMLQuantizationType(self.ggml_type)))


def gguf_part(name: str, rows: int, inputs: int) -> Part:
    """A random weight in GGUF type `name`."""
    import gguf

    kind = gguf.GGMLQuantizationType[name]
    data = gguf.quantize(torch.randn(rows, inputs).numpy(), kind)
    return Part((rows, inputs), data=data, ggml_type=int(kind))


def dense_part(rows: int, inputs: int, dtype: torch.dtype = torch.float32) -> Part:
    return Part((rows, inputs), tensor=torch.randn(rows, inputs).to(dtype))


def rounded(x: Tensor) -> Tensor:
    """What the kernels make of activations: int8 with a scale a row and group of 32, as float64."""
    groups = x.view(x.shape[0], -1, 32)
    largest = groups.abs().amax(-1, keepdim=True)
    inverse = torch.where(largest > 0, 127.0 / largest, torch.zeros(()))
    return (torch.round(groups * inverse).double() * (largest / 127.0).double()).view_as(x)


@dataclass(frozen=True)
class AttentionCase:
    """One op's arguments besides the norms."""

    qkv: Tensor
    rope: Rope
    kv: KVLayer
    plan: AttentionPlan

    def copy(self) -> KVLayer:
        return KVLayer(self.kv.k.clone(), self.kv.v.clone())


def attention_case(
    rows: list[tuple[int, int]], *, heads: int, kv_heads: int, head_dim: int, block_size: int, padding: int = 0
) -> AttentionCase:
    """Rows are (new tokens, context after them); blocks are scattered over a cache with other content."""
    used = [-(-context // block_size) for _, context in rows]
    blocks = torch.randperm(sum(used) + 3)
    kv = KVLayer(*(torch.randn(len(blocks), kv_heads, block_size, head_dim) for _ in "kv"))
    tables = torch.zeros(len(rows), max(used) + 1, dtype=torch.int32)
    slots, positions, host_rows = [], [], []
    first = start = 0
    for i, (new, context) in enumerate(rows):
        tables[i, : used[i]] = blocks[first : first + used[i]]
        first += used[i]
        for position in range(context - new, context):
            slots.append(int(tables[i, position // block_size]) * block_size + position % block_size)
            positions.append(position)
        host_rows.append((start, start + new, context))
        start += new
    angles = torch.arange(max(context for _, context in rows))[:, None] * torch.rand(head_dim // 2)
    plan = AttentionPlan(
        num_heads=heads,
        scale=head_dim**-0.5,
        num_tokens=start,
        num_rows=len(rows),
        num_decode_rows=0,
        rope_rows=torch.tensor(positions + [0] * padding),
        slots=torch.tensor(slots + [-1] * padding),
        query_start=torch.tensor([0] + [end for _, end, _ in host_rows], dtype=torch.int32),
        context_lens=torch.tensor([context for _, context in rows], dtype=torch.int32),
        block_tables=tables,
        host_rows=host_rows,
    )
    qkv = torch.randn(start + padding, (heads + 2 * kv_heads) * head_dim)
    return AttentionCase(qkv, Rope(angles.cos(), angles.sin()), kv, plan)
