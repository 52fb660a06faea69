"""Memory for weights in huge pages: a decode step reads all of it, and small pages make that a quarter slower."""

from __future__ import annotations

import mmap
import threading

import torch
from torch import Tensor

_HUGE_PAGE = 2 << 20
_REGION = 64 << 20  # asked of the system at once; what is not used of it takes no memory
_LINE = 64


class WeightArena:
    """Hands out zeroed byte tensors, side by side in huge pages where the system has them. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._region = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def take(self, size: int) -> Tensor:
        """uint8 [size], aligned to a cache line. Its region lives as long as any tensor of it."""
        with self._lock:
            if self._used + size > len(self._region):
                self._region, self._used = _region(max(size, _REGION)), 0
            tensor = self._region[self._used : self._used + size]
            self._used += -(-size // _LINE) * _LINE
        return tensor


def _region(size: int) -> Tensor:
    # private, since huge pages of shared memory are off by default
    memory = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    region = torch.frombuffer(memory, dtype=torch.uint8)
    return region[-region.data_ptr() % _HUGE_PAGE :]
