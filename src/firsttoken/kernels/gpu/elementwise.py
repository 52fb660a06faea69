"""The small kernels around library products: RMSNorm, SwiGLU, embedding."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x, weight, out, eps, K: tl.constexpr, BK: tl.constexpr, FOLDED: tl.constexpr):
    """x [rows, K] -> out [rows, K]; one program a row, BK the power of two from K up."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BK)
    v = tl.load(x + row * K + k, mask=k < K, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / K + eps)
    v = v * scale
    if not FOLDED:
        v = v * tl.load(weight + k, mask=k < K, other=0.0).to(tl.float32)
    tl.store(out + row * K + k, v, mask=k < K)


@triton.jit
def swiglu_kernel(gate_up, out, N: tl.constexpr, BN: tl.constexpr):
    """gate_up [rows, 2 N] (gate first) -> out [rows, N] = silu(gate) * up."""
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    gate = tl.load(gate_up + row * 2 * N + n, mask=n < N, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * N + N + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(out + row * N + n, gate * tl.sigmoid(gate) * up, mask=n < N)


@triton.jit
def embedding_kernel(token_ids, weight, out, K: tl.constexpr, BK: tl.constexpr):
    """token_ids [rows] int64, weight [vocab, K] -> out [rows, K]."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BK)
    token = tl.load(token_ids + row)
    tl.store(out + row * K + k, tl.load(weight + token * K + k, mask=k < K, other=0.0), mask=k < K)
