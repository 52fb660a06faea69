"""The weight of a linear layer in each form that the ops know. Every form is [out, in], row-major by output row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from firsttoken.kernels.cpu_forms import CpuLinear
from firsttoken.kernels.quant_linear import QuantLinear


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm: x / rms(x) * weight, computed in float32."""

    weight: Tensor  # [hidden]
    eps: float
    folded: bool = False  # the weight is all ones: the next product's weight holds what it was


@dataclass(frozen=True, slots=True)
class DenseLinear:
    """A weight in the dtype it is multiplied in."""

    weight: Tensor  # [out, in]
    bias: Tensor | None = None  # [out]

    @property
    def out_features(self) -> int:
        return self.weight.shape[0]

    @property
    def in_features(self) -> int:
        return self.weight.shape[1]

    @property
    def num_bytes(self) -> int:
        """Bytes read when the whole weight is."""
        bias = 0 if self.bias is None else self.bias.numel() * self.bias.element_size()
        return self.weight.numel() * self.weight.element_size() + bias

    def dequantize(self) -> Tensor:
        """The weight as float32, [out, in]."""
        return self.weight.to(torch.float32)


GpuLinear = DenseLinear | QuantLinear  # what the reference and the GPU's kernels take
Linear = GpuLinear | CpuLinear  # every form of a weight
