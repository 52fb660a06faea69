"""Products of a few to some hundred rows with a weight, on the matrix units: still bound by the weight's bytes.

The same ops as `matvec`, but rows are padded to `BM` (16 and up) and each program multiplies a [BN, BK] weight tile
with a [BK, BM] activation tile. More rows than a tile has take several (BM of them each), which only quantised weights
are given: dense ones have the library. A quantised tile is words, and each value of all words is a product of its own
with the activations that it meets. The norm needs its scale only after the product: scale is one number a row.

A weight of few rows is split along K too (SPLITS), for there would be too few programs to keep the memory busy. The
last program of a tile to arrive adds up the parts, always in the same order, and writes the result.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from firsttoken.kernels.gpu.packed import grid, inputs, scaled, value, values_a_word


@triton.jit
def prefetch_l2(pointers):
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [pointers], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def _values(tile, scale, zero, V: tl.constexpr, FORM: tl.constexpr, ZERO: tl.constexpr, DTYPE: tl.constexpr):
    """A dense tile as it is, or value V of each word as a weight."""
    if FORM == 0:
        return tile
    else:
        return scaled(value(tile, V, FORM), scale, zero, 1.0, FORM, ZERO).to(DTYPE)


@triton.jit(do_not_specialize=["M"])
def rows_dot_kernel(
    x,  # [M, K]
    w,  # [N, K], or [2 N, K] with SWIGLU; words of a quantised weight, see `packed`
    scale,  # of a quantised weight
    zero,  # likewise
    norm_weight,  # [K]
    bias,  # [N] or [2 N]
    residual,  # [M, N]
    out,  # [M, N]
    partial,  # [tiles, SPLITS, BN, BM] float32
    arrivals,  # [tiles] int32, zero before and after
    eps,
    M,
    N: tl.constexpr,
    K: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
    SPLITS: tl.constexpr,  # more than 1: of products without NORM and SWIGLU, and K is a multiple of SPLITS * BK
    PREFETCH: tl.constexpr,  # columns of each weight row asked for before the wait; 0 is none
    NORM: tl.constexpr,
    FOLDED: tl.constexpr,  # the norm's weight is already multiplied into w
    SWIGLU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    BIAS: tl.constexpr,
    PDL: tl.constexpr,
    FORM: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    ZERO: tl.constexpr,
):
    if PDL:
        gdc_launch_dependents()
    PER: tl.constexpr = values_a_word(FORM)
    KW: tl.constexpr = K // PER  # of a row: words, or values of a dense weight
    BKW: tl.constexpr = BK // PER
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    n_mask = n < N
    m = tl.arange(0, BM)
    if FORM != 0:
        m += tl.program_id(2) * BM
    m_mask = m < M
    at = n[:, None] * KW + tl.arange(0, BKW)[None, :]
    PART: tl.constexpr = KW // SPLITS
    first = 0 if SPLITS == 1 else tl.program_id(1) * PART
    if PDL:
        if PREFETCH > 0:  # the first weights travel to L2 while the kernel before this one ends
            LINE: tl.constexpr = 64 if FORM == 0 else 32  # of 128 bytes
            lines = tl.arange(0, PREFETCH // PER // LINE) * LINE
            where = w + n[:, None] * KW + first + lines[None, :]
            prefetch_l2(where)
            if SWIGLU:
                prefetch_l2(where + N * KW)
        gdc_wait()
    acc = tl.zeros((BN, BM), dtype=tl.float32)
    acc_up = tl.zeros((BN, BM), dtype=tl.float32)
    squares = tl.zeros((BM, BKW), dtype=tl.float32)
    for k0 in tl.range(first, first + PART, BKW, num_stages=STAGES):
        wt = tl.load(w + at + k0, mask=n_mask[:, None], other=0, eviction_policy="evict_first")
        s = wt if FORM == 0 else grid(scale, n, n_mask, k0, K, BKW, FORM, GROUP, ROWS)
        z = s if ZERO == 0 else grid(zero, n, n_mask, k0, K, BKW, FORM, GROUP, ROWS)
        if SWIGLU:
            ut = tl.load(w + N * KW + at + k0, mask=n_mask[:, None], other=0, eviction_policy="evict_first")
            us = ut if FORM == 0 else grid(scale, n + N, n_mask, k0, K, BKW, FORM, GROUP, ROWS)
            uz = us if ZERO == 0 else grid(zero, n + N, n_mask, k0, K, BKW, FORM, GROUP, ROWS)
        for i in tl.static_range(PER):
            kk = inputs(k0, i, BKW, FORM)
            a = tl.load(x + m[None, :] * K + kk[:, None], mask=m_mask[None, :], other=0.0)  # [BKW, BM]
            if NORM:
                # Loaded a second time: with Triton 3.6 a tile that both a register and an asynchronous product read
                # gets one buffer too few, and the product may see it overwritten.
                plain = tl.load(x + m[:, None] * K + kk[None, :], mask=m_mask[:, None], other=0.0).to(tl.float32)
                squares += plain * plain
                if not FOLDED:
                    a = (a.to(tl.float32) * tl.load(norm_weight + kk).to(tl.float32)[:, None]).to(a.dtype)
            acc = tl.dot(_values(wt, s, z, i, FORM, ZERO, a.dtype), a, acc)
            if SWIGLU:
                acc_up = tl.dot(_values(ut, us, uz, i, FORM, ZERO, a.dtype), a, acc_up)
    if SPLITS > 1:
        tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
        cell = tl.arange(0, BN)[:, None] * BM + tl.arange(0, BM)[None, :]
        tl.store(partial + (tile * SPLITS + tl.program_id(1)) * (BN * BM) + cell, acc)
        tl.debug_barrier()  # every thread's part is written before one thread announces it
        seen = tl.atomic_add(arrivals + tile, 1, sem="acq_rel")
        if seen != SPLITS - 1:
            return
        tl.store(arrivals + tile, 0)
        acc = tl.zeros((BN, BM), dtype=tl.float32)
        for i in tl.static_range(SPLITS):
            acc += tl.load(partial + (tile * SPLITS + i) * (BN * BM) + cell, cache_modifier=".cg")
    if NORM:
        scale = tl.rsqrt(tl.sum(squares, axis=1) / K + eps)
        acc = acc * scale[None, :]
        acc_up = acc_up * scale[None, :]
    if BIAS:
        acc += tl.load(bias + n, mask=n_mask, other=0.0).to(tl.float32)[:, None]
        if SWIGLU:
            acc_up += tl.load(bias + N + n, mask=n_mask, other=0.0).to(tl.float32)[:, None]
    if SWIGLU:
        acc = acc * tl.sigmoid(acc) * acc_up
    where = m[None, :] * N + n[:, None]
    mask = n_mask[:, None] & m_mask[None, :]
    if RESIDUAL:
        acc += tl.load(residual + where, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + where, acc, mask=mask)
