"""Products of one to four rows with a weight: bound by the weight's bytes, so each byte is read once and early.

One kernel serves the four products of a layer and the head: RMSNorm folds into the prologue, SwiGLU or the residual
into the epilogue. A program owns `BN` output features and walks K in tiles of `BK`, `AHEAD` tiles ahead of its
arithmetic, accumulating elementwise in float32: one [BN, BK] accumulator a row of activations, so that a weight tile is
converted once for all rows.

With programmatic dependent launch (compute capability 9.0 and up) the next kernel starts while this one drains, and
each program has its first weight tiles under way before it waits for the activations: weights never depend on the
kernel before. Every kernel of a chain launched so must wait, or the one after it could overtake the one before it.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _weights(w, at, n_mask, k0: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, EVEN_N: tl.constexpr):
    """The [BN, BK] weight tile that begins at column k0; zeros past the edges."""
    if k0 + BK > K:
        mask = (k0 + tl.arange(0, BK))[None, :] < K
        if not EVEN_N:
            mask = mask & n_mask[:, None]
        return tl.load(w + at + k0, mask=mask, other=0.0, eviction_policy="evict_first")
    elif EVEN_N:
        return tl.load(w + at + k0, eviction_policy="evict_first")
    else:
        return tl.load(w + at + k0, mask=n_mask[:, None], other=0.0, eviction_policy="evict_first")


@triton.jit
def _vector(x, k0: tl.constexpr, K: tl.constexpr, BK: tl.constexpr):
    """[BK] values of one row in float32."""
    k = k0 + tl.arange(0, BK)
    if k0 + BK > K:
        return tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
    else:
        return tl.load(x + k).to(tl.float32)


@triton.jit
def _finish(acc, squares, bias, eps, K: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr):
    """Sums a row's [BN, BK] accumulator and applies the norm's scale and the bias [BN]: -> [BN]."""
    y = tl.sum(acc, axis=1)
    if NORM:
        y = y * tl.rsqrt(tl.sum(squares, axis=0) / K + eps)
    if BIAS:
        y += bias.to(tl.float32)
    return y


@triton.jit
def _kept(residual, n, n_mask, m: tl.constexpr, N: tl.constexpr, RESIDUAL: tl.constexpr):
    """A row's residual [BN], asked for before the sums are there, which would else wait for it."""
    return tl.load(residual + m * N + n, mask=n_mask, other=0.0) if RESIDUAL else n


@triton.jit
def _store(y, up, kept, out, n, n_mask, m: tl.constexpr, N: tl.constexpr, SWIGLU: tl.constexpr, RESIDUAL: tl.constexpr):
    if SWIGLU:
        y = y * tl.sigmoid(y) * up
    if RESIDUAL:
        y += kept.to(tl.float32)
    tl.store(out + m * N + n, y, mask=n_mask)


@triton.jit
def matvec_kernel(
    x,  # [M, K]
    w,  # [N, K], or [2 N, K] with SWIGLU: gate rows, then up rows
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
):
    if PDL:
        gdc_launch_dependents()
    EVEN_N: tl.constexpr = N % BN == 0
    TILES: tl.constexpr = (K + BK - 1) // BK
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    n_mask = n < N
    at = n[:, None] * K + tl.arange(0, BK)[None, :]
    w_up = w + N * K

    w0 = _weights(w, at, n_mask, 0, K, BK, EVEN_N)
    w1 = _weights(w, at, n_mask, BK, K, BK, EVEN_N) if AHEAD >= 2 and TILES >= 2 else w0
    w2 = _weights(w, at, n_mask, 2 * BK, K, BK, EVEN_N) if AHEAD >= 3 and TILES >= 3 else w0
    if SWIGLU:
        u0 = _weights(w_up, at, n_mask, 0, K, BK, EVEN_N)
        u1 = _weights(w_up, at, n_mask, BK, K, BK, EVEN_N) if AHEAD >= 2 and TILES >= 2 else u0
        u2 = _weights(w_up, at, n_mask, 2 * BK, K, BK, EVEN_N) if AHEAD >= 3 and TILES >= 3 else u0
    b = tl.load(bias + n, mask=n_mask, other=0.0) if BIAS else n
    b_up = tl.load(bias + N + n, mask=n_mask, other=0.0) if BIAS and SWIGLU else n
    if PDL:
        gdc_wait()
    kept0 = _kept(residual, n, n_mask, 0, N, RESIDUAL)
    kept1 = _kept(residual, n, n_mask, 1, N, RESIDUAL) if M > 1 else kept0
    kept2 = _kept(residual, n, n_mask, 2, N, RESIDUAL) if M > 2 else kept0
    kept3 = _kept(residual, n, n_mask, 3, N, RESIDUAL) if M > 3 else kept0

    acc0 = tl.zeros((BN, BK), dtype=tl.float32)
    acc1, acc2, acc3 = acc0, acc0, acc0
    up0, up1, up2, up3 = acc0, acc0, acc0, acc0
    sq0 = tl.zeros((BK,), dtype=tl.float32)
    sq1, sq2, sq3 = sq0, sq0, sq0
    for i in tl.static_range(TILES):
        wt = w0.to(tl.float32)
        if SWIGLU:
            ut = u0.to(tl.float32)
        if AHEAD == 1:
            if i + 1 < TILES:
                w0 = _weights(w, at, n_mask, (i + 1) * BK, K, BK, EVEN_N)
                if SWIGLU:
                    u0 = _weights(w_up, at, n_mask, (i + 1) * BK, K, BK, EVEN_N)
        elif AHEAD == 2:
            w0 = w1
            if SWIGLU:
                u0 = u1
            if i + 2 < TILES:
                w1 = _weights(w, at, n_mask, (i + 2) * BK, K, BK, EVEN_N)
                if SWIGLU:
                    u1 = _weights(w_up, at, n_mask, (i + 2) * BK, K, BK, EVEN_N)
        else:
            w0 = w1
            w1 = w2
            if SWIGLU:
                u0 = u1
                u1 = u2
            if i + 3 < TILES:
                w2 = _weights(w, at, n_mask, (i + 3) * BK, K, BK, EVEN_N)
                if SWIGLU:
                    u2 = _weights(w_up, at, n_mask, (i + 3) * BK, K, BK, EVEN_N)
        if NORM and not FOLDED:
            nw = _vector(norm_weight, i * BK, K, BK)
        a = _vector(x, i * BK, K, BK)
        if NORM:
            sq0 += a * a
            if not FOLDED:
                a = a * nw
        acc0 += a[None, :] * wt
        if SWIGLU:
            up0 += a[None, :] * ut
        if M > 1:
            a = _vector(x + K, i * BK, K, BK)
            if NORM:
                sq1 += a * a
                if not FOLDED:
                    a = a * nw
            acc1 += a[None, :] * wt
            if SWIGLU:
                up1 += a[None, :] * ut
        if M > 2:
            a = _vector(x + 2 * K, i * BK, K, BK)
            if NORM:
                sq2 += a * a
                if not FOLDED:
                    a = a * nw
            acc2 += a[None, :] * wt
            if SWIGLU:
                up2 += a[None, :] * ut
        if M > 3:
            a = _vector(x + 3 * K, i * BK, K, BK)
            if NORM:
                sq3 += a * a
                if not FOLDED:
                    a = a * nw
            acc3 += a[None, :] * wt
            if SWIGLU:
                up3 += a[None, :] * ut

    y = _finish(acc0, sq0, b, eps, K, NORM, BIAS)
    up = _finish(up0, sq0, b_up, eps, K, NORM, BIAS) if SWIGLU else y
    _store(y, up, kept0, out, n, n_mask, 0, N, SWIGLU, RESIDUAL)
    if M > 1:
        y = _finish(acc1, sq1, b, eps, K, NORM, BIAS)
        up = _finish(up1, sq1, b_up, eps, K, NORM, BIAS) if SWIGLU else y
        _store(y, up, kept1, out, n, n_mask, 1, N, SWIGLU, RESIDUAL)
    if M > 2:
        y = _finish(acc2, sq2, b, eps, K, NORM, BIAS)
        up = _finish(up2, sq2, b_up, eps, K, NORM, BIAS) if SWIGLU else y
        _store(y, up, kept2, out, n, n_mask, 2, N, SWIGLU, RESIDUAL)
    if M > 3:
        y = _finish(acc3, sq3, b, eps, K, NORM, BIAS)
        up = _finish(up3, sq3, b_up, eps, K, NORM, BIAS) if SWIGLU else y
        _store(y, up, kept3, out, n, n_mask, 3, N, SWIGLU, RESIDUAL)
