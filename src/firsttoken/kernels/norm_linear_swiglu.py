"""The gate and up products with RMSNorm before and SwiGLU after."""

from __future__ import annotations

from torch import Tensor

from firsttoken.kernels import reference
from firsttoken.kernels.cpu_forms import CpuLinear
from firsttoken.kernels.gpu import on_gpu
from firsttoken.kernels.linear import Linear, Norm


def norm_linear_swiglu(x: Tensor, norm: Norm, weight: Linear) -> Tensor:
    """[tokens, in], weight [2 inter, in] (gate rows first) -> [tokens, inter]."""
    if isinstance(weight, CpuLinear):
        return weight.kernels.norm_linear_swiglu(x, norm, weight)
    if on_gpu(x):
        from firsttoken.kernels.gpu import ops as gpu

        return gpu.norm_linear_swiglu(x, norm, weight)
    return reference.norm_linear_swiglu(x, norm, weight)
