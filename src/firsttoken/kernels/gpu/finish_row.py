"""The end of a quantised product of one row: from a program's sums to what is stored."""

from __future__ import annotations

import triton
import triton.language as tl

from firsttoken.kernels.gpu.packed import above, factor


@triton.jit
def whole(acc, totals, scale, zero, FORM: tl.constexpr, ZERO: tl.constexpr, GROUPED: tl.constexpr, BY: tl.constexpr):
    """The sums of a program's rows: [BN]. `totals`: of all activations, [runs]; `scale` and `zero`: of the rows."""
    y = tl.sum(acc, axis=1)
    if not GROUPED:
        if ZERO == 1:
            y -= tl.sum(totals, axis=0) * (above(FORM, ZERO, BY) + zero.to(tl.float32))
        elif FORM != 3:
            y -= tl.sum(totals, axis=0) * above(FORM, ZERO, BY)
        y *= scale.to(tl.float32)
    return y * factor(FORM, BY)


@triton.jit
def finish_row(
    y,  # [BN]
    y_up,
    squares,  # partial sums of the row's squares
    bias,  # [BN]; what is not used is anything
    bias_up,
    residual,  # [BN]
    out,
    n,
    n_mask,
    eps,
    K: tl.constexpr,
    NORM: tl.constexpr,
    SWIGLU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    BIAS: tl.constexpr,
):
    """Norm's scale, bias, SwiGLU and residual, each where the op has it, and the store."""
    if NORM:
        inverse = tl.rsqrt(tl.sum(squares, axis=0) / K + eps)
        y *= inverse
        y_up *= inverse
    if BIAS:
        y += bias.to(tl.float32)
        if SWIGLU:
            y_up += bias_up.to(tl.float32)
    if SWIGLU:
        y = y * tl.sigmoid(y) * y_up
    if RESIDUAL:
        y += residual.to(tl.float32)
    tl.store(out + n, y, mask=n_mask)
