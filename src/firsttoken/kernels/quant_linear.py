"""Weights of 8 and 4 bits for a GPU, in one layout for every published form.

Values of 8 bits lie in a row as they come. Those of 4 bits lie in runs of 32 inputs, 16 bytes: byte i of a run holds
its inputs i (the low half) and 16 + i. So the low halves of some bytes meet activations that are neighbours in runs
of 16, as do the high ones, and a run never crosses a group, whose inputs are a multiple of 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from firsttoken.kernels.quant_forms import BITS, HALF_RUN, MIDDLE, QuantForm

_SLICE = 4096  # rows widened at a time


@dataclass(frozen=True, slots=True)
class QuantLinear:
    """A weight of 8 or 4 bits with scales.

    A value u stands for u * scale (fp8), (u - zero) * scale with integer points (128 or 8 where there are none), or
    u * scale + zero with offsets.
    """

    form: QuantForm
    data: Tensor  # uint8 [out, in * bits / 8]
    scale: Tensor  # [ceil(out / rows), ceil(in / group)], of any float type
    zero: Tensor | None  # uint8 points or float offsets, in the scales' shape
    group: int  # inputs a scale; all of them: `in_features`
    rows: int = 1  # output rows a scale
    bias: Tensor | None = None  # [out]

    @property
    def out_features(self) -> int:
        return self.data.shape[0]

    @property
    def in_features(self) -> int:
        return self.data.shape[1] * 8 // BITS[self.form]

    @property
    def num_bytes(self) -> int:
        """Bytes read when the whole weight is."""
        tensors = (self.data, self.scale, self.zero, self.bias)
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)

    @property
    def kind(self) -> str:
        """What a kernel is compiled for: form, inputs and rows a scale, and what stands for zero."""
        zero = "" if self.zero is None else "-points" if self.zero.dtype == torch.uint8 else "-offsets"
        group = "row" if self.group >= self.in_features else str(self.group)
        return f"{self.form}-{group}{f'x{self.rows}' if self.rows > 1 else ''}{zero}"

    def dequantize(self) -> Tensor:
        """The weight as float32, [out, in]."""
        out = torch.empty(self.out_features, self.in_features, device=self.data.device)
        step = _SLICE // self.rows * self.rows or self.rows
        for start in range(0, self.out_features, step):
            out[start : start + step] = self.widened(start, min(start + step, self.out_features))
        return out

    def widened(self, start: int, end: int) -> Tensor:
        """Output rows [start, end) as float32; `start` begins rows that share a scale."""
        u = unpack(self.data[start:end], BITS[self.form])
        values = u.view(torch.float8_e4m3fn).to(torch.float32) if self.form == "fp8" else u.to(torch.float32)
        scale = self._spread(self.scale, start, end)
        if self.zero is None:
            return (values - MIDDLE[self.form]) * scale
        zero = self._spread(self.zero, start, end)
        return values * scale + zero if self.zero.is_floating_point() else (values - zero) * scale

    def _spread(self, grid: Tensor, start: int, end: int) -> Tensor:
        """A grid's float32 values for each weight of output rows [start, end)."""
        part = grid[start // self.rows : -(-end // self.rows)].to(torch.float32)
        whole = part.repeat_interleave(self.rows, 0)[: end - start]
        return whole.repeat_interleave(self.group, 1)[:, : self.in_features]


def fits(in_features: int, form: QuantForm) -> bool:
    """Whether rows of so many inputs can be kept: of 4 bits in whole runs, of 8 in whole reads of 16 bytes."""
    return in_features % (2 * HALF_RUN if BITS[form] == 4 else 16) == 0


def pack(values: Tensor, bits: int) -> Tensor:
    """uint8 [out, in] in the natural order -> uint8 [out, in * bits / 8]."""
    if bits == 8:
        return values.contiguous()
    runs = values.view(len(values), -1, 2, HALF_RUN)
    return (runs[:, :, 0] | (runs[:, :, 1] << 4)).view(len(values), -1)


def unpack(data: Tensor, bits: int) -> Tensor:
    """The inverse of `pack`."""
    if bits == 8:
        return data
    runs = data.view(len(data), -1, 1, HALF_RUN)
    return torch.cat([runs & 15, runs >> 4], dim=2).view(len(data), -1)


def stack(parts: Sequence[QuantLinear], bias: Tensor | None = None) -> QuantLinear | None:
    """Parts below each other, their biases left out; None where their forms, groups or kinds of zero differ."""
    first = parts[0]
    if any((part.form, part.group) != (first.form, first.group) for part in parts):
        return None
    if len({part.zero is not None and part.zero.is_floating_point() for part in parts}) > 1:
        return None
    if any(part.zero is not None for part in parts):
        parts = [_with_points(part) for part in parts]
    rows = {part.rows for part in parts}
    if len(rows) > 1 or any(part.out_features % part.rows for part in parts[:-1]):
        parts = [_by_row(part) for part in parts]  # a block of rows must not belong to two parts
    zeros = [part.zero for part in parts if part.zero is not None]
    return replace(
        parts[0],
        data=torch.cat([part.data for part in parts]),
        scale=torch.cat([part.scale for part in parts]),
        zero=torch.cat(zeros) if zeros else None,
        bias=bias,
    )


def _with_points(part: QuantLinear) -> QuantLinear:
    if part.zero is not None:
        return part
    return replace(part, zero=torch.full_like(part.scale, MIDDLE[part.form], dtype=torch.uint8))


def _by_row(part: QuantLinear) -> QuantLinear:
    """The same with a scale for each output row."""

    def each(grid: Tensor) -> Tensor:
        return grid.repeat_interleave(part.rows, 0)[: part.out_features]

    return replace(part, scale=each(part.scale), zero=None if part.zero is None else each(part.zero), rows=1)
