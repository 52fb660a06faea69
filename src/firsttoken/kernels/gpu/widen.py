"""The small kernels around library products with quantised weights: the weight widened, the rows rounded to FP8."""

from __future__ import annotations

import triton
import triton.language as tl

from firsttoken.kernels.gpu.packed import HALF, added, inputs, values, values_a_byte


@triton.jit
def _grid(grid, rows, rows_mask, k, k_mask, K: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr):
    """The scales or zeros of rows and inputs k: [BN, COUNT]."""
    GROUPS: tl.constexpr = (K + GROUP - 1) // GROUP
    at = rows[:, None] // ROWS * GROUPS + k[None, :] // GROUP
    return tl.load(grid + at, mask=rows_mask[:, None] & k_mask[None, :], other=0)


@triton.jit
def widen_kernel(
    w,  # [N, K] bytes, [N, K / 2] of 4 bits
    scale,
    zero,
    out,  # [N, K]
    N,
    K: tl.constexpr,
    BN: tl.constexpr,
    COUNT: tl.constexpr,  # bytes
    FORM: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    ZERO: tl.constexpr,
):
    """The weight in out's dtype."""
    KB: tl.constexpr = K // values_a_byte(FORM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    first = tl.program_id(1) * COUNT
    n_mask, k_mask = n < N, first + tl.arange(0, COUNT) < KB
    mask = n_mask[:, None] & k_mask[None, :]
    at = n[:, None].to(tl.int64) * KB + first + tl.arange(0, COUNT)[None, :]
    tile = tl.load(w + at, mask=mask, other=0)
    for high in tl.static_range(values_a_byte(FORM)):
        k = inputs(first, COUNT, FORM) + high * HALF
        v = values(tile, high == 1, FORM, False, tl.float32)
        if FORM != 3:
            v -= added(FORM, ZERO, False)
        z = _grid(zero, n, n_mask, k, k_mask, K, GROUP, ROWS).to(tl.float32) if ZERO > 0 else 0.0
        if ZERO == 1:
            v -= z
        v *= _grid(scale, n, n_mask, k, k_mask, K, GROUP, ROWS).to(tl.float32)
        if ZERO == 2:
            v += z
        tl.store(out + n[:, None].to(tl.int64) * K + k[None, :], v, mask=mask)


@triton.jit
def fp8_rows_kernel(
    x,  # [M, K]
    norm_weight,  # [K]
    out,  # [M and more, K] E4M3
    scales,  # [groups, M and more] float32
    eps,
    stride,  # of a group's scales
    K: tl.constexpr,
    BK: tl.constexpr,  # the power of two from K up
    GROUP: tl.constexpr,  # inputs that share a scale: a power of two; BK is a whole row
    NORM: tl.constexpr,
    MAX: tl.constexpr,
):
    """Rounds rows to FP8 with a scale for each group of a row; RMSNorm before it."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BK)
    v = tl.load(x + row * K + k, mask=k < K, other=0.0).to(tl.float32)
    if NORM:
        weight = tl.load(norm_weight + k, mask=k < K, other=0.0).to(tl.float32)
        v = v * tl.rsqrt(tl.sum(v * v, axis=0) / K + eps) * weight
    v = tl.reshape(v, (BK // GROUP, GROUP))
    scale = tl.maximum(tl.max(tl.abs(v), axis=1), 1e-12) / MAX
    rounded = tl.reshape((v / scale[:, None]).to(out.dtype.element_ty), (BK,))
    tl.store(out + row * K + k, rounded, mask=k < K)
    group = tl.arange(0, BK // GROUP)
    tl.store(scales + group * stride + row, scale, mask=group * GROUP < K)
