"""Weights as they lie in a file, and the one place where they become the linears that the ops take.

Every source (safetensors, GGUF, dummy) speaks Hugging Face's tensor names, NeoX-order rotary rows and [out, in] shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firsttoken.kernels.kept_blocks import KEPT, from_blocks
from firsttoken.kernels.linear import DenseLinear, Linear
from firsttoken.kernels.quant_forms import QuantForm
from firsttoken.kernels.quant_linear import QuantLinear
from firsttoken.model.stored_quant import StoredQuant


@dataclass(frozen=True, slots=True)
class RawWeight:
    """One tensor of a model file: dense in `tensor`, GGUF blocks in `data` with their `ggml_type`, or `stored` as else.

    `data` is uint8 [out, bytes a row]: rows are whole numbers of blocks, so that rows can be moved or joined freely.
    It may be a view of a mapped file: copy what must outlive the source.
    """

    name: str  # "model.layers.0.self_attn.q_proj.weight"
    shape: tuple[int, ...]  # [out, in] or [n]
    tensor: Tensor | None = None
    data: npt.NDArray[np.uint8] | None = None
    ggml_type: int | None = None  # a gguf.GGMLQuantizationType
    stored: StoredQuant | None = None

    @property
    def form(self) -> QuantForm | None:
        """The form that `packed` gives; None where the weight is dense, or in blocks of another kind."""
        if self.stored is not None:
            return self.stored.quantization.form
        return None if self.ggml_type is None else KEPT.get(self.ggml_type)

    def packed(self, device: torch.device) -> QuantLinear:
        """The weight in its own bits on a device, for one that has a `form`."""
        if self.stored is not None:
            return self.stored.on(device)
        assert self.data is not None
        assert self.ggml_type is not None
        return from_blocks(self.data, self.ggml_type, device)

    def dequantize(self) -> Tensor:
        """The weight as float32 in `shape`; a copy unless it already is a float32 tensor."""
        if self.tensor is not None:
            return self.tensor.to(torch.float32)
        if self.stored is not None:
            return self.stored.on(torch.device("cpu")).dequantize()
        assert self.data is not None
        assert self.ggml_type is not None
        from firsttoken.model.dequantize import dequantize  # its package is for GGUF files alone

        return torch.from_numpy(dequantize(self.data, self.ggml_type)).view(self.shape)


class WeightSource(Protocol):
    """Where a decoder's tensors come from. `take` is called from several threads at once."""

    def take(self, name: str) -> RawWeight:
        """The tensor of this Hugging Face name. Raises ModelError where it is missing or has the wrong shape."""

    def kv_scales(self) -> list[Tensor] | None:
        """[2, kv_heads] float32 a layer, of an FP8 cache's keys and values; None where the model brings none."""


class LinearFactory(Protocol):
    """Makes one linear of raw parts stacked by output row (q, k, v; gate, up; or a single one), in order.

    `name` says which: "model.layers.3.qkv", ".o", ".gate_up", ".down", or "lm_head". `bias` is float32 [out] of the
    whole, or None. Called from several threads at once.
    """

    def __call__(self, name: str, parts: Sequence[RawWeight], bias: Tensor | None = None) -> Linear: ...


@dataclass(frozen=True, slots=True)
class DenseLinears:
    """The default factory: every linear dense in one dtype on one device."""

    dtype: torch.dtype
    device: torch.device

    def __call__(self, name: str, parts: Sequence[RawWeight], bias: Tensor | None = None) -> Linear:
        rows = sum(part.shape[0] for part in parts)
        weight = torch.empty(rows, parts[0].shape[1], dtype=self.dtype, device=self.device)
        start = 0
        for part in parts:  # each part goes straight to its place on the device: no joined copy on the host
            weight[start : start + part.shape[0]].copy_(widened(part, self.device))
            start += part.shape[0]
        return DenseLinear(weight, None if bias is None else bias.to(self.device, self.dtype))


def dense(raw: RawWeight) -> Tensor:
    """The weight as a tensor in the file's own float dtype, or float32 for quantised blocks."""
    return raw.dequantize() if raw.tensor is None else raw.tensor


def widened(raw: RawWeight, device: torch.device) -> Tensor:
    """As `dense`; a GPU widens quantised weights itself, for their bytes travel faster than their floats."""
    return raw.packed(device).dequantize() if device.type == "cuda" and raw.form is not None else dense(raw)
