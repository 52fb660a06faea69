"""Triton forms of the ops. Triton is imported only where a CUDA device runs the model, or a test asks for it."""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# A product and a sum in one instruction, as the kernels were measured: Triton 3.9 warns that 3.10 will not unless told
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def attends(head_dim: int) -> bool:
    """Whether the attention kernels are written for heads of this width; torch serves the others, slowly."""
    return head_dim in (32, 64, 128, 256)


def on_gpu(x: Tensor) -> bool:
    """Whether the Triton forms run on x: half precision on a CUDA device, or one that stands for it."""
    return (x.is_cuda or x.is_meta) and x.itemsize == 2 and has_triton()
