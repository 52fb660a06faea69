"""The activations of one row that meet 16 bytes of a weight: 16, or of 4 bits 16 and 16, in four quadruples each.

Each thread loads its own runs, eight bytes at a time: laid out otherwise they would have to change threads first.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _asked4(x, k, K: tl.constexpr, EVEN: tl.constexpr, BITS: tl.constexpr):
    """Four activations from each k on: as they lie in memory where they have 16 bits, else in float32."""
    if BITS:
        where = (x + k).to(tl.pointer_type(tl.int64))
        return tl.load(where) if EVEN else tl.load(where, mask=k < K, other=0)
    else:
        mask = k < K
        return (
            tl.load(x + k, mask=mask, other=0.0).to(tl.float32),
            tl.load(x + k + 1, mask=mask, other=0.0).to(tl.float32),
            tl.load(x + k + 2, mask=mask, other=0.0).to(tl.float32),
            tl.load(x + k + 3, mask=mask, other=0.0).to(tl.float32),
        )


@triton.jit
def _asked(x, k, K: tl.constexpr, EVEN: tl.constexpr, BITS: tl.constexpr):
    """Sixteen activations from each k on, in four parts."""
    a, b = _asked4(x, k, K, EVEN, BITS), _asked4(x, k + 4, K, EVEN, BITS)
    return a, b, _asked4(x, k + 8, K, EVEN, BITS), _asked4(x, k + 12, K, EVEN, BITS)


@triton.jit
def _floats4(asked, BITS: tl.constexpr):
    if BITS:
        low, high = asked.to(tl.int32), (asked >> 32).to(tl.int32)
        return (
            (low << 16).to(tl.float32, bitcast=True),
            (low & -65536).to(tl.float32, bitcast=True),
            (high << 16).to(tl.float32, bitcast=True),
            (high & -65536).to(tl.float32, bitcast=True),
        )
    else:
        return asked


@triton.jit
def floats(asked, BITS: tl.constexpr):
    a, b = _floats4(asked[0], BITS), _floats4(asked[1], BITS)
    return a, b, _floats4(asked[2], BITS), _floats4(asked[3], BITS)


@triton.jit
def _product4(a, b):
    return a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]


@triton.jit
def product(a, b):
    p, q = _product4(a[0], b[0]), _product4(a[1], b[1])
    return p, q, _product4(a[2], b[2]), _product4(a[3], b[3])


@triton.jit
def _sum4(a):
    return (a[0] + a[1]) + (a[2] + a[3])


@triton.jit
def total_of(a):
    return (_sum4(a[0]) + _sum4(a[1])) + (_sum4(a[2]) + _sum4(a[3]))


@triton.jit
def _largest4(q):
    return tl.maximum(tl.maximum(tl.abs(q[0]), tl.abs(q[1])), tl.maximum(tl.abs(q[2]), tl.abs(q[3])))


@triton.jit
def largest(h):
    """Of four quadruples."""
    return tl.maximum(tl.maximum(_largest4(h[0]), _largest4(h[1])), tl.maximum(_largest4(h[2]), _largest4(h[3])))


@triton.jit
def run_activations(x, run, K: tl.constexpr, EVEN: tl.constexpr, FORM: tl.constexpr, ASM: tl.constexpr):
    """Those of the runs: 16, or of 4 bits 16 and 16."""
    a = _asked(x, run, K, EVEN, ASM)
    return a, _asked(x, run + 16, K, EVEN, ASM) if FORM == 1 else a
