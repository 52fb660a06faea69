"""The o and down products with the residual added."""

from __future__ import annotations

from torch import Tensor

from firsttoken.kernels import reference
from firsttoken.kernels.cpu_forms import CpuLinear
from firsttoken.kernels.gpu import on_gpu
from firsttoken.kernels.linear import Linear


def linear_add(x: Tensor, weight: Linear, residual: Tensor) -> Tensor:
    """residual + x W^T: [tokens, in], [tokens, out] -> [tokens, out]. May write into `residual` and return it."""
    if isinstance(weight, CpuLinear):
        return weight.kernels.linear_add(x, weight, residual)
    if on_gpu(x):
        from firsttoken.kernels.gpu import ops as gpu

        return gpu.linear_add(x, weight, residual)
    return reference.linear_add(x, weight, residual)
