"""The end of a product of several rows, dense or quantised: bias, SwiGLU, residual, and the store."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def finish_tile(
    acc,  # [BN, BM] float32
    acc_up,  # likewise, read with SWIGLU
    bias,  # [N] or [2 N]
    residual,  # [M, N]
    out,  # [M, N]
    n,  # [BN] output features
    n_mask,
    m,  # [BM] rows
    m_mask,
    N: tl.constexpr,
    SWIGLU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    BIAS: tl.constexpr,
):
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
