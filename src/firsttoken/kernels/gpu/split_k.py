"""What kernels share that split a product along K: parts are left in memory, and the last program to arrive adds them.

They are added in the same order whichever program is last, so that a result never depends on the timing.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _cells(acc):
    return tl.arange(0, acc.shape[0])[:, None] * acc.shape[1] + tl.arange(0, acc.shape[1])[None, :]


@triton.jit
def leave_part(acc, partial, index):
    """Stores a tile [BN, BM] as number `index` of those at `partial`."""
    tl.store(partial + index * acc.numel + _cells(acc), acc)


@triton.jit
def is_last(arrivals, SPLITS: tl.constexpr):
    """Whether all other programs of a tile have left their parts too; the counter is zero again then."""
    tl.debug_barrier()  # every thread's part is written before one thread announces it
    last = tl.atomic_add(arrivals, 1, sem="acq_rel") == SPLITS - 1
    if last:
        tl.store(arrivals, 0)
    return last


@triton.jit
def add_parts(acc, partial, first, STEP: tl.constexpr, SPLITS: tl.constexpr):
    """The sum of every STEP-th tile at `partial` from number `first` on, in the shape of `acc`."""
    total = tl.zeros_like(acc)
    for i in tl.static_range(SPLITS):
        total += tl.load(partial + (first + i * STEP) * acc.numel + _cells(acc), cache_modifier=".cg")
    return total
