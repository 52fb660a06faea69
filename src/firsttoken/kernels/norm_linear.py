"""qkv and the head: RMSNorm folded into a product."""

from __future__ import annotations

from torch import Tensor

from firsttoken.kernels import reference
from firsttoken.kernels.cpu_forms import CpuLinear
from firsttoken.kernels.linear import Linear, Norm


def norm_linear(x: Tensor, norm: Norm, weight: Linear) -> Tensor:
    """[tokens, in] -> [tokens, out]."""
    if isinstance(weight, CpuLinear):
        return weight.kernels.norm_linear(x, norm, weight)
    return reference.norm_linear(x, norm, weight)
