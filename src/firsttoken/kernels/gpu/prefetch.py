"""Asking for memory ahead of time, without a register to receive it."""

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
def prefetch_rows(w, rows, first, PITCH: tl.constexpr, BYTES: tl.constexpr):
    """Asks for BYTES, a multiple of 128, of each of these rows of bytes, from byte `first` on."""
    lines = tl.arange(0, BYTES // 128) * 128
    prefetch_l2(w + rows[:, None] * PITCH + first + lines[None, :])
