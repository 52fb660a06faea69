"""Paged keys and values of one sequence, made contiguous for a library's attention."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gather_kernel(
    k_cache,  # [blocks, KV_HEADS, BLOCK, HEAD_DIM]
    v_cache,
    table,  # [blocks of the sequence] int32
    keys,  # [context, KV_HEADS, HEAD_DIM], out
    values,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,  # the power of two from KV_HEADS * HEAD_DIM up
):
    t = tl.program_id(0)
    i = tl.arange(0, WIDTH)
    mask = i < KV_HEADS * HEAD_DIM
    block = tl.load(table + t // BLOCK).to(tl.int64)
    head, d = i // HEAD_DIM, i % HEAD_DIM
    at = ((block * KV_HEADS + head) * BLOCK + t % BLOCK) * HEAD_DIM + d
    to = t.to(tl.int64) * KV_HEADS * HEAD_DIM + i
    tl.store(keys + to, tl.load(k_cache + at, mask=mask), mask=mask)
    tl.store(values + to, tl.load(v_cache + at, mask=mask), mask=mask)
