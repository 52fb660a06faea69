"""The small kernels around library products with quantised weights: the weight widened, the rows rounded to FP8."""

from __future__ import annotations

import triton
import triton.language as tl

from firsttoken.kernels.gpu.packed import grid, inputs, scaled, value, values_a_word


@triton.jit
def widen_kernel(
    words,  # [N, K / values a word]
    scale,
    zero,
    out,  # [N, K]
    N,
    K: tl.constexpr,
    BN: tl.constexpr,
    COUNT: tl.constexpr,  # words
    FORM: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    ZERO: tl.constexpr,
):
    """The weight in out's dtype."""
    PER: tl.constexpr = values_a_word(FORM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    first = tl.program_id(1) * COUNT
    word = first + tl.arange(0, COUNT)
    n_mask = n < N
    mask = n_mask[:, None] & (word < K // PER)[None, :]
    tile = tl.load(words + n[:, None] * (K // PER) + word[None, :], mask=mask, other=0)
    s = grid(scale, n, n_mask, first, K, COUNT, FORM, GROUP, ROWS)
    z = grid(zero, n, n_mask, first, K, COUNT, FORM, GROUP, ROWS) if ZERO > 0 else s
    for i in tl.static_range(PER):
        k = inputs(first, i, COUNT, FORM)
        there = n[:, None].to(tl.int64) * K + k[None, :]
        tl.store(out + there, scaled(value(tile, i, FORM), s, z, 1.0, FORM, ZERO), mask=mask)


@triton.jit
def fp8_rows_kernel(
    x,  # [M, K]
    norm_weight,  # [K]
    out,  # [M, K] E4M3, the inputs in the order in which the weight's lie in memory
    scales,  # [M] float32
    eps,
    K: tl.constexpr,
    BK: tl.constexpr,  # the power of two from K up
    NORM: tl.constexpr,
    MAX: tl.constexpr,
):
    """Rounds rows to FP8 with a scale each; RMSNorm before it."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BK)
    v = tl.load(x + row * K + k, mask=k < K, other=0.0).to(tl.float32)
    if NORM:
        weight = tl.load(norm_weight + k, mask=k < K, other=0.0).to(tl.float32)
        v = v * tl.rsqrt(tl.sum(v * v, axis=0) / K + eps) * weight
    scale = tl.maximum(tl.max(tl.abs(v), axis=0), 1e-12) / MAX
    place = k // 16 * 16 + k % 4 * 4 + k % 16 // 4  # input 4 i + j of a run is value i of word j
    tl.store(out + row * K + place, (v / scale).to(out.dtype.element_ty), mask=k < K)
    tl.store(scales + row, scale)
