"""Activations as pairs of E4M3 numbers, for `quant_pairs`."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LEFT: tl.constexpr = tl.constexpr(16.0)  # what the second number of a pair is multiplied with
GRID: tl.constexpr = tl.constexpr(1.5 * 2.0**14)  # a float32 beside which one is a multiple of 2^-9


@triton.jit(do_not_specialize=["M"])
def pair_rows_kernel(
    x,  # [M, K]
    norm_weight,  # [K]
    out,  # [M, 2, K] E4M3
    powers,  # [M] float32: what a pair's numbers are to be multiplied with
    sums,  # [M, K / SUMS] float32: of so many activations each, in units of `powers`
    eps,
    M,
    K: tl.constexpr,
    BK: tl.constexpr,  # the power of two from K up
    NORM: tl.constexpr,
    FOLDED: tl.constexpr,
    SUMS: tl.constexpr,  # 0 is none
    PDL: tl.constexpr,
):
    """Rows of bf16 as pairs of E4M3 numbers; RMSNorm before it. Rows from M on are zeros."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BK)
    if PDL:
        gdc_launch_dependents()
    by = tl.load(norm_weight + k, mask=k < K, other=0.0).to(tl.float32) if NORM and not FOLDED else 1.0
    if PDL:
        gdc_wait()
    v = tl.load(x + row * K + k, mask=k < tl.where(row < M, K, 0), other=0.0).to(tl.float32)
    scale = 1.0
    if NORM:
        scale = tl.rsqrt(tl.sum(v * v, axis=0) / K + eps)
        v = v * by
    # The largest is brought to [128, 256): what is below its 2^13th part may lose bits. Magnitudes have the same order
    # as whole numbers, and what is infinite or no number is above all others: such a row may not be cut into numbers.
    most = tl.max(v.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=0)  # beside the sum of squares, not after it
    if NORM:
        most = (most.to(tl.float32, bitcast=True) * scale).to(tl.int32, bitcast=True) & 0x7FFFFFFF
        v = v * scale
    most = tl.maximum(most, 0x0DA24260)  # 1e-30
    power = (most & 0x7F800000) - (7 << 23)
    v = v * ((254 << 23) - power).to(tl.float32, bitcast=True)  # over the power, exactly
    power = tl.where(most < 0x7F800000, power.to(tl.float32, bitcast=True), float("nan"))
    # Cut, not rounded, so that the conversion is exact: of the eight bits that bf16 has, four and four. What lies below
    # E4M3's normal numbers comes to its grid by an addition; to read the converted one back would be simpler, but
    # ptxas 12.8 then reads registers that were never written.
    bits = v.to(tl.int32, bitcast=True) + 0x8000
    v = (bits & -0x10000).to(tl.float32, bitcast=True)
    first = (bits & -0x100000).to(tl.float32, bitcast=True)
    first = tl.where(tl.abs(first) < 2.0**-6, (first + GRID) - GRID, first)
    left = ((v - first) * LEFT).to(tl.float8e4nv)
    first = first.to(tl.float8e4nv)
    tl.store(out + row * 2 * K + k, first, mask=k < K)
    tl.store(out + (row * 2 + 1) * K + k, left, mask=k < K)
    tl.store(powers + row, power)
    if SUMS > 0:
        of_some = tl.sum(tl.reshape(v, (BK // SUMS, SUMS)), axis=1)
        g = tl.arange(0, BK // SUMS)
        tl.store(sums + row * (K // SUMS) + g, of_some, mask=g < K // SUMS)
