"""The memory in which the parts of a product that is split along K meet, see `split_k`."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from firsttoken.kernels.gpu.launch import Product


def split_parts(launch: Product, out: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Room for parts of `shape`, and counters of how many have arrived, one for each of its first dimension.

    `out` stands for both where nothing is split: then neither is read.
    """
    if launch.splits == 1:
        return out, out
    return torch.empty(shape, dtype=torch.float32, device=out.device), _arrivals(out.device, shape[0])


@functools.cache
def _arrivals(device: torch.device, tiles: int) -> Tensor:
    """Counters of split products: zero before and after each, and products of one stream never overlap."""
    return torch.zeros(tiles, dtype=torch.int32, device=device)
