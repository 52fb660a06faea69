"""E4M3 numbers in Triton. Writing takes integer arithmetic everywhere; reading has a form for each kind of card.

Cards from compute capability 8.9 up convert in hardware. Others move the bits into a float16, whose wider exponent
makes it 2^-8 of the number, exactly and for every number: the factor goes into the scale.
"""

from __future__ import annotations

from typing import Literal

import triton
import triton.language as tl

KvForm = Literal[0, 1, 2]
PLAIN: KvForm = 0  # keys and values as they are
BY_BITS: KvForm = 1  # E4M3, read by moving bits
NATIVE: KvForm = 2  # E4M3, read by the card's own conversion


@triton.jit
def encode(x):
    """float32 -> uint8: the nearest number, even where two are as near, within +-448."""
    magnitude = tl.minimum(tl.abs(x), 448.0)
    bits = magnitude.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - 960  # exponents: 127 there, 7 here, three bits up
    small = (magnitude + 16384.0).to(tl.int32, bitcast=True) - 0x46800000  # counts steps of 2^-9
    code = tl.where(magnitude < 0.015625, small, normal)
    return (code | ((x.to(tl.int32, bitcast=True) >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def read_kv(x, FORM: tl.constexpr):
    """What was loaded from the cache, as the products take it. E4M3 becomes float16, see `unit`."""
    if FORM == 1:
        wide = x.to(tl.uint16)
        x = (((wide & 0x80) << 8) | ((wide & 0x7F) << 7)).to(tl.float16, bitcast=True)
    elif FORM == 2:
        x = x.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    return x


@triton.jit
def unit(FORM: tl.constexpr):
    """What `read_kv`'s results are to be multiplied with beside the scale."""
    if FORM == 1:
        return 256.0
    else:
        return 1.0


@triton.jit
def as_query(q, cache, FORM: tl.constexpr):
    """Queries in the type in which they meet the keys."""
    if FORM == 0:
        q = q.to(cache.dtype.element_ty)
    else:
        q = q.to(tl.float16)
    return q
