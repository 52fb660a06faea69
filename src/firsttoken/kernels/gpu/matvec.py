"""Products of one to four rows with a weight: bound by the weight's bytes, so each byte is read once and early.

One kernel serves the four products of a layer and the head: RMSNorm folds into the prologue, SwiGLU or the residual
into the epilogue. A program owns `BN` output features and walks K in tiles of `BK`, `AHEAD` tiles ahead of its
arithmetic, accumulating elementwise in float32: one [BN, BK] accumulator a row of activations, so that a weight tile is
converted once for all rows. Of a quantised weight the tiles are words (`packed`), and so are the accumulator's columns:
a word's values share a scale, so it multiplies their sum.

With programmatic dependent launch (compute capability 9.0 and up) the next kernel starts while this one drains, and
each program has its first weight tiles under way before it waits for the activations: weights never depend on the
kernel before. Every kernel of a chain launched so must wait, or the one after it could overtake the one before it.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from firsttoken.kernels.gpu.packed import grid, inputs, scaled, value, values_a_word


@triton.jit
def _weights(w, at, n_mask, k0: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, EVEN_N: tl.constexpr):
    """The [BN, BK] weight tile that begins at column k0; zeros past the edges."""
    if k0 + BK > K:
        mask = (k0 + tl.arange(0, BK))[None, :] < K
        if not EVEN_N:
            mask = mask & n_mask[:, None]
        return tl.load(w + at + k0, mask=mask, other=0, eviction_policy="evict_first")
    elif EVEN_N:
        return tl.load(w + at + k0, eviction_policy="evict_first")
    else:
        return tl.load(w + at + k0, mask=n_mask[:, None], other=0, eviction_policy="evict_first")


@triton.jit
def _tile(
    w,
    at,
    scale,
    zero,
    rows,
    n_mask,
    i: tl.constexpr,
    K: tl.constexpr,
    BK: tl.constexpr,
    EVEN_N: tl.constexpr,
    FORM: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    ZERO: tl.constexpr,
):
    """Tile i of the weight's rows: its values or words, and their scales and zeros."""
    PER: tl.constexpr = values_a_word(FORM)
    COUNT: tl.constexpr = BK // PER
    tile = _weights(w, at, n_mask, i * COUNT, K // PER, COUNT, EVEN_N)
    if FORM == 0:
        return tile, tile, tile
    else:
        s = grid(scale, rows, n_mask, i * COUNT, K, COUNT, FORM, GROUP, ROWS)
        z = grid(zero, rows, n_mask, i * COUNT, K, COUNT, FORM, GROUP, ROWS) if ZERO > 0 else s
        return tile, s, z


@triton.jit
def _vector(x, k, k0: tl.constexpr, K: tl.constexpr, BK: tl.constexpr):
    """Values k of one row, all from tile k0 on, in float32."""
    if k0 + BK > K:
        return tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
    else:
        return tl.load(x + k).to(tl.float32)


@triton.jit
def _multiply(
    acc,
    up,
    squares,
    tile,
    up_tile,
    x,
    norm_weight,
    i: tl.constexpr,
    K: tl.constexpr,
    BK: tl.constexpr,
    NORM: tl.constexpr,
    FOLDED: tl.constexpr,
    SWIGLU: tl.constexpr,
    FORM: tl.constexpr,
    ZERO: tl.constexpr,
):
    """One activation row times tile i of the weight (and of the up rows), added up."""
    PER: tl.constexpr = values_a_word(FORM)
    COUNT: tl.constexpr = BK // PER
    if FORM == 0:
        k = i * BK + tl.arange(0, BK)
        a = _vector(x, k, i * BK, K, BK)
        if NORM:
            squares += a * a
            if not FOLDED:
                a = a * _vector(norm_weight, k, i * BK, K, BK)
        acc += a[None, :] * tile[0].to(tl.float32)
        if SWIGLU:
            up += a[None, :] * up_tile[0].to(tl.float32)
    else:
        total = tl.zeros_like(acc)
        up_total = tl.zeros_like(acc)
        count = tl.zeros((1, COUNT), dtype=tl.float32)
        for j in tl.static_range(PER):
            k = inputs(i * COUNT, j, COUNT, FORM)
            a = _vector(x, k, i * BK, K, BK)
            if NORM:
                squares += a * a
                if not FOLDED:
                    a = a * _vector(norm_weight, k, i * BK, K, BK)
            total += a[None, :] * value(tile[0], j, FORM)
            if SWIGLU:
                up_total += a[None, :] * value(up_tile[0], j, FORM)
            count += a[None, :]
        acc += scaled(total, tile[1], tile[2], count, FORM, ZERO)
        if SWIGLU:
            up += scaled(up_total, up_tile[1], up_tile[2], count, FORM, ZERO)
    return acc, up, squares


@triton.jit
def _finish(acc, squares, bias, n, n_mask, eps, K: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr):
    """Sums a row's [BN, BK] accumulator and applies the norm's scale and the bias: -> [BN]."""
    y = tl.sum(acc, axis=1)
    if NORM:
        y = y * tl.rsqrt(tl.sum(squares, axis=0) / K + eps)
    if BIAS:
        y += tl.load(bias + n, mask=n_mask, other=0.0).to(tl.float32)
    return y


@triton.jit
def _store(
    y, up, residual, out, n, n_mask, m: tl.constexpr, N: tl.constexpr, SWIGLU: tl.constexpr, RESIDUAL: tl.constexpr
):
    if SWIGLU:
        y = y * tl.sigmoid(y) * up
    if RESIDUAL:
        y += tl.load(residual + m * N + n, mask=n_mask, other=0.0).to(tl.float32)
    tl.store(out + m * N + n, y, mask=n_mask)


@triton.jit
def matvec_kernel(
    x,  # [M, K]
    w,  # [N, K], or [2 N, K] with SWIGLU: gate rows, then up rows; words of a quantised weight, see `packed`
    scale,  # of a quantised weight
    zero,  # likewise
    norm_weight,  # [K]
    bias,  # [N] or [2 N]
    residual,  # [M, N]
    out,  # [M, N]
    eps,
    N: tl.constexpr,
    K: tl.constexpr,
    M: tl.constexpr,  # 1 to 4
    BN: tl.constexpr,
    BK: tl.constexpr,
    AHEAD: tl.constexpr,  # 1 to 3 weight tiles under way before they are needed
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
    EVEN_N: tl.constexpr = N % BN == 0
    TILES: tl.constexpr = (K + BK - 1) // BK
    PER: tl.constexpr = values_a_word(FORM)
    COUNT: tl.constexpr = BK // PER
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    n_mask = n < N
    at = n[:, None] * (K // PER) + tl.arange(0, COUNT)[None, :]
    w_up = w + N * (K // PER)

    t0 = _tile(w, at, scale, zero, n, n_mask, 0, K, BK, EVEN_N, FORM, GROUP, ROWS, ZERO)
    t1, t2 = t0, t0
    if AHEAD >= 2 and TILES >= 2:
        t1 = _tile(w, at, scale, zero, n, n_mask, 1, K, BK, EVEN_N, FORM, GROUP, ROWS, ZERO)
    if AHEAD >= 3 and TILES >= 3:
        t2 = _tile(w, at, scale, zero, n, n_mask, 2, K, BK, EVEN_N, FORM, GROUP, ROWS, ZERO)
    u0, u1, u2 = t0, t1, t2
    if SWIGLU:
        u0 = _tile(w_up, at, scale, zero, n + N, n_mask, 0, K, BK, EVEN_N, FORM, GROUP, ROWS, ZERO)
        if AHEAD >= 2 and TILES >= 2:
            u1 = _tile(w_up, at, scale, zero, n + N, n_mask, 1, K, BK, EVEN_N, FORM, GROUP, ROWS, ZERO)
        if AHEAD >= 3 and TILES >= 3:
            u2 = _tile(w_up, at, scale, zero, n + N, n_mask, 2, K, BK, EVEN_N, FORM, GROUP, ROWS, ZERO)
    if PDL:
        gdc_wait()

    acc0 = tl.zeros((BN, COUNT), dtype=tl.float32)
    acc1, acc2, acc3 = acc0, acc0, acc0
    up0, up1, up2, up3 = acc0, acc0, acc0, acc0
    sq0 = tl.zeros((COUNT,), dtype=tl.float32)
    sq1, sq2, sq3 = sq0, sq0, sq0
    for i in tl.static_range(TILES):
        t, u = t0, u0
        if AHEAD >= 2:
            t0, u0 = t1, u1
        if AHEAD >= 3:
            t1, u1 = t2, u2
        if i + AHEAD < TILES:
            t2 = _tile(w, at, scale, zero, n, n_mask, i + AHEAD, K, BK, EVEN_N, FORM, GROUP, ROWS, ZERO)
            if SWIGLU:
                u2 = _tile(w_up, at, scale, zero, n + N, n_mask, i + AHEAD, K, BK, EVEN_N, FORM, GROUP, ROWS, ZERO)
            if AHEAD == 1:
                t0, u0 = t2, u2
            if AHEAD == 2:
                t1, u1 = t2, u2
        acc0, up0, sq0 = _multiply(acc0, up0, sq0, t, u, x, norm_weight, i, K, BK, NORM, FOLDED, SWIGLU, FORM, ZERO)
        if M > 1:
            acc1, up1, sq1 = _multiply(
                acc1, up1, sq1, t, u, x + K, norm_weight, i, K, BK, NORM, FOLDED, SWIGLU, FORM, ZERO
            )
        if M > 2:
            acc2, up2, sq2 = _multiply(
                acc2, up2, sq2, t, u, x + 2 * K, norm_weight, i, K, BK, NORM, FOLDED, SWIGLU, FORM, ZERO
            )
        if M > 3:
            acc3, up3, sq3 = _multiply(
                acc3, up3, sq3, t, u, x + 3 * K, norm_weight, i, K, BK, NORM, FOLDED, SWIGLU, FORM, ZERO
            )

    y = _finish(acc0, sq0, bias, n, n_mask, eps, K, NORM, BIAS)
    up = _finish(up0, sq0, bias + N, n, n_mask, eps, K, NORM, BIAS) if SWIGLU else y
    _store(y, up, residual, out, n, n_mask, 0, N, SWIGLU, RESIDUAL)
    if M > 1:
        y = _finish(acc1, sq1, bias, n, n_mask, eps, K, NORM, BIAS)
        up = _finish(up1, sq1, bias + N, n, n_mask, eps, K, NORM, BIAS) if SWIGLU else y
        _store(y, up, residual, out, n, n_mask, 1, N, SWIGLU, RESIDUAL)
    if M > 2:
        y = _finish(acc2, sq2, bias, n, n_mask, eps, K, NORM, BIAS)
        up = _finish(up2, sq2, bias + N, n, n_mask, eps, K, NORM, BIAS) if SWIGLU else y
        _store(y, up, residual, out, n, n_mask, 2, N, SWIGLU, RESIDUAL)
    if M > 3:
        y = _finish(acc3, sq3, bias, n, n_mask, eps, K, NORM, BIAS)
        up = _finish(up3, sq3, bias + N, n, n_mask, eps, K, NORM, BIAS) if SWIGLU else y
        _store(y, up, residual, out, n, n_mask, 3, N, SWIGLU, RESIDUAL)
