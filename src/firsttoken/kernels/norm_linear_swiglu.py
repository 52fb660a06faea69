"""The gate and up products with RMSNorm before and SwiGLU after."""

from __future__ import annotations

from torch import Tensor

from firsttoken.kernels import reference
from firsttoken.kernels.linear import DenseLinear, Norm


def norm_linear_swiglu(x: Tensor, norm: Norm, weight: DenseLinear) -> Tensor:
    """[tokens, in], weight [2 inter, in] (gate rows first) -> [tokens, inter]."""
    return reference.norm_linear_swiglu(x, norm, weight)
