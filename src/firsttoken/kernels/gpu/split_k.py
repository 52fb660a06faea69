"""What kernels share that split a product along K: parts are left in memory, and the last program to arrive adds them.

They are added in the same order whichever program is last, so that a result never depends on the timing.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def prefetch_l2(pointers):
    """Asks for the lines of 128 bytes at these addresses, and waits for none."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [pointers], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def leave_part(acc, partial, arrivals, tile, part, SPLITS: tl.constexpr):
    """Stores a tile's part [BN, BM]; whether all others are there too, after which the counter is zero again."""
    cell = tl.arange(0, acc.shape[0])[:, None] * acc.shape[1] + tl.arange(0, acc.shape[1])[None, :]
    tl.store(partial + (tile * SPLITS + part) * acc.numel + cell, acc)
    tl.debug_barrier()  # every thread's part is written before one thread announces it
    last = tl.atomic_add(arrivals + tile, 1, sem="acq_rel") == SPLITS - 1
    if last:
        tl.store(arrivals + tile, 0)
    return last


@triton.jit
def add_parts(acc, partial, tile, SPLITS: tl.constexpr):
    """The sum of a tile's parts, in the shape of `acc`."""
    cell = tl.arange(0, acc.shape[0])[:, None] * acc.shape[1] + tl.arange(0, acc.shape[1])[None, :]
    total = tl.zeros_like(acc)
    for i in tl.static_range(SPLITS):
        total += tl.load(partial + (tile * SPLITS + i) * acc.numel + cell, cache_modifier=".cg")
    return total
