"""The o and down products with the residual added."""

from __future__ import annotations

from torch import Tensor

from firsttoken.kernels import reference
from firsttoken.kernels.linear import DenseLinear


def linear_add(x: Tensor, weight: DenseLinear, residual: Tensor) -> Tensor:
    """residual + x W^T: [tokens, in], [tokens, out] -> [tokens, out]. May write into `residual` and return it."""
    return reference.linear_add(x, weight, residual)
