"""Low-bit weights for the CPU: groups of 32 inputs with a scale (and a lowest value), packed for the C kernels."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firsttoken.kernels.cpu_ops import CpuKernels
from firsttoken.kernels.kept_blocks import Q4_1, to_q4_1
from firsttoken.kernels.quant_forms import QuantForm
from firsttoken.kernels.quant_linear import QuantLinear

if TYPE_CHECKING:
    from firsttoken.kernels.linear import Linear

Form = Literal["int4", "int8", "keep"]
GROUP = 32
_BLOCK_ROWS = 16
_GROUP_BYTES = {4: 320, 8: 544}  # of 16 rows and 32 inputs, scales included
_PACK_ROWS = 1024  # rows made float32 at a time while packing
_SPEC = struct.Struct("3q2P")  # ft_linear in cpu/linear.h


class Part(Protocol):
    """What a form is made of: model.weights.RawWeight, seen from below."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def tensor(self) -> Tensor | None: ...
    @property
    def data(self) -> npt.NDArray[np.uint8] | None: ...
    @property
    def ggml_type(self) -> int | None: ...
    @property
    def form(self) -> QuantForm | None: ...
    def packed(self, device: torch.device) -> QuantLinear: ...
    def dequantize(self) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class CpuLinear:
    """A weight of 4 or 8 bits. Products round the activations to int8 with a scale per row and group of 32.

    A row's result depends on that row alone: the same bits whatever runs beside it, on any number of threads.
    """

    kernels: CpuKernels
    bits: int
    out_features: int
    in_features: int
    data: Tensor  # uint8, the packed blocks
    bias: Tensor | None  # [out] float32
    spec: bytes  # the C view of the fields above

    @property
    def num_bytes(self) -> int:
        """Bytes read when the whole weight is."""
        return self.data.numel() + (0 if self.bias is None else self.bias.numel() * 4)

    def dequantize(self) -> Tensor:
        """The weight as float32, [out, in]."""
        return self.kernels.unpack(self)

    def rows(self, ids: Tensor) -> Tensor:
        """Rows `ids` [n] as float32 [n, in]: the embedding of a table that is also the head."""
        return self.kernels.rows(self, ids)


@dataclass(frozen=True, slots=True)
class CpuLinears:
    """The linear factory of the low-bit CPU forms.

    "keep" takes Q4_0, Q4_1 and Q8_0 blocks as they are, puts other groups of 4 bits into Q4_1 blocks, and rounds
    anything else to int8.
    """

    kernels: CpuKernels | None  # None: dense float32
    form: Form = "keep"
    head_form: Form | None = None  # of lm_head, which is also the embedding; None: int8 rather than int4

    def __call__(self, name: str, parts: Sequence[Part], bias: Tensor | None = None) -> Linear:
        form = self.form
        if name == "lm_head":
            form = self.head_form or ("int8" if form == "int4" else form)
        return make_cpu_linear(parts, form, self.kernels, bias)


def make_cpu_linear(
    parts: Sequence[Part], form: Form, kernels: CpuKernels | None, bias: Tensor | None = None
) -> Linear:
    """One weight of parts stacked by row; dense float32 without kernels or where the inputs are no multiple of 32."""
    in_features = parts[0].shape[1]
    rows = [part.shape[0] for part in parts]
    bias = None if bias is None else bias.to(torch.float32).contiguous()
    if kernels is None or in_features % GROUP:
        from firsttoken.kernels.linear import DenseLinear

        return DenseLinear(torch.cat([part.dequantize() for part in parts]), bias)
    bits = _bits(parts, form)
    blocks = -(-sum(rows) // _BLOCK_ROWS)
    size = blocks * (in_features // GROUP) * _GROUP_BYTES[bits]
    data = kernels.arena.take(size)  # zeroed, as the rows that pad the last block must be
    spec = _SPEC.pack(bits, sum(rows), in_features, data.data_ptr(), 0 if bias is None else bias.data_ptr())
    first = 0
    for part, count in zip(parts, rows, strict=True):
        _pack(kernels, spec, bits, first, part)
        first += count
    return CpuLinear(kernels, bits, sum(rows), in_features, data, bias, spec)


def _bits(parts: Sequence[Part], form: Form) -> int:
    if form != "keep":
        return {"int4": 4, "int8": 8}[form]
    return 4 if all(part.form == "int4" for part in parts) else 8


def _pack(kernels: CpuKernels, spec: bytes, bits: int, first: int, part: Part) -> None:
    kept = part.form is not None and part.form == f"int{bits}"
    if kept and part.data is not None and part.ggml_type is not None:
        blocks = np.ascontiguousarray(part.data)
        kernels.pack_gguf(spec, first, part.shape[0], part.ggml_type, blocks.ctypes.data, blocks.shape[1])
        return
    if kept and bits == 4:
        blocks = to_q4_1(part.packed(torch.device("cpu")))
        kernels.pack_gguf(spec, first, part.shape[0], Q4_1, blocks.ctypes.data, blocks.shape[1])
        return
    dense = part.dequantize() if part.tensor is None else part.tensor
    for start in range(0, part.shape[0], _PACK_ROWS):  # a float32 copy of a few rows at a time
        kernels.pack_float(spec, first + start, dense[start : start + _PACK_ROWS])
