"""qkv and the head: RMSNorm folded into a product."""

from __future__ import annotations

from torch import Tensor

from firsttoken.kernels import reference
from firsttoken.kernels.linear import DenseLinear, Norm


def norm_linear(x: Tensor, norm: Norm, weight: DenseLinear) -> Tensor:
    """[tokens, in] -> [tokens, out]."""
    return reference.norm_linear(x, norm, weight)
