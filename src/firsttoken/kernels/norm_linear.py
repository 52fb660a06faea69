"""qkv and the head: RMSNorm folded into a product."""

from __future__ import annotations

import torch
from torch import Tensor

from firsttoken.kernels import reference
from firsttoken.kernels.cpu_forms import CpuLinear
from firsttoken.kernels.gpu import on_gpu
from firsttoken.kernels.linear import Linear, Norm


def norm_linear(x: Tensor, norm: Norm, weight: Linear, out_dtype: torch.dtype | None = None) -> Tensor:
    """[tokens, in] -> [tokens, out], in x's dtype unless told otherwise (the head's logits are float32)."""
    if isinstance(weight, CpuLinear):
        return weight.kernels.norm_linear(x, norm, weight)
    if on_gpu(x):
        from firsttoken.kernels.gpu import ops as gpu

        return gpu.norm_linear(x, norm, weight, out_dtype)
    out = reference.norm_linear(x, norm, weight)
    return out if out_dtype is None else out.to(out_dtype)
