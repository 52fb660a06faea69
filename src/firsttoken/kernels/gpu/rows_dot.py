"""Products of a few rows with a dense weight, on the matrix units: still bound by the weight's bytes.

The same ops as `matvec`, but rows are padded to `BM` (16 and up) and each program multiplies a [BN, BK] weight tile
with a [BK, BM] activation tile. The norm needs its scale only after the product: scale is one number a row.

A weight of few rows is split along K too (SPLITS), for there would be too few programs to keep the memory busy. The
last program of a tile to arrive adds up the parts, always in the same order, and writes the result.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from firsttoken.kernels.gpu.finish_tile import finish_tile
from firsttoken.kernels.gpu.prefetch import prefetch_l2
from firsttoken.kernels.gpu.split_k import add_parts, is_last, leave_part


@triton.jit(do_not_specialize=["M"])
def rows_dot_kernel(
    x,  # [M, K]
    w,  # [N, K], or [2 N, K] with SWIGLU
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
):
    if PDL:
        gdc_launch_dependents()
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    n_mask = n < N
    m = tl.arange(0, BM)
    m_mask = m < M
    k = tl.arange(0, BK)
    at = n[:, None] * K + k[None, :]
    PART: tl.constexpr = K // SPLITS
    first = 0 if SPLITS == 1 else tl.program_id(1) * PART
    if PDL:
        if PREFETCH > 0:  # the first weights travel to L2 while the kernel before this one ends
            lines = tl.arange(0, PREFETCH // 64) * 64
            where = w + n[:, None] * K + first + lines[None, :]
            prefetch_l2(where)
            if SWIGLU:
                prefetch_l2(where + N * K)
        gdc_wait()
    acc = tl.zeros((BN, BM), dtype=tl.float32)
    acc_up = tl.zeros((BN, BM), dtype=tl.float32)
    squares = tl.zeros((BM, BK), dtype=tl.float32)
    for k0 in tl.range(first, first + PART, BK, num_stages=STAGES):
        kk = k0 + k
        a = tl.load(x + m[None, :] * K + kk[:, None], mask=m_mask[None, :], other=0.0)  # [BK, BM]
        wt = tl.load(w + at + k0, mask=n_mask[:, None], other=0.0, eviction_policy="evict_first")
        if NORM:
            # Loaded a second time: with Triton 3.6 a tile that both a register and an asynchronous product read gets
            # one buffer too few, and the product may see it overwritten.
            plain = tl.load(x + m[:, None] * K + kk[None, :], mask=m_mask[:, None], other=0.0).to(tl.float32)
            squares += plain * plain
            if not FOLDED:
                a = (a.to(tl.float32) * tl.load(norm_weight + kk).to(tl.float32)[:, None]).to(a.dtype)
        acc = tl.dot(wt, a, acc)
        if SWIGLU:
            ut = tl.load(w + N * K + at + k0, mask=n_mask[:, None], other=0.0, eviction_policy="evict_first")
            acc_up = tl.dot(ut, a, acc_up)
    if SPLITS > 1:
        mine = partial + tl.program_id(0) * (SPLITS * BN * BM)
        leave_part(acc, mine, tl.program_id(1))
        if not is_last(arrivals + tl.program_id(0), SPLITS):
            return
        acc = add_parts(acc, mine, 0, 1, SPLITS)
    if NORM:
        scale = tl.rsqrt(tl.sum(squares, axis=1) / K + eps)
        acc = acc * scale[None, :]
        acc_up = acc_up * scale[None, :]
    finish_tile(acc, acc_up, bias, residual, out, n, n_mask, m, m_mask, N, SWIGLU, RESIDUAL, BIAS)
