"""E4M3 numbers in Triton. Writing takes integer arithmetic everywhere; reading has a form for each kind of card.

Cards from compute capability 8.9 up convert in hardware. Others move the bits into a float16, whose wider exponent
makes it 2^-8 of the number, exactly and for every number: the factor goes into the scale.
"""

from __future__ import annotations

from typing import Literal

import triton
import triton.language as tl

KvForm = Literal[0, 1, 2, 3]
PLAIN: KvForm = 0  # keys and values as they are
BY_BITS: KvForm = 1  # E4M3, read by moving bits
NATIVE: KvForm = 2  # E4M3, read by the card's own conversion
BY_CODE: KvForm = 3  # as BY_BITS, in instructions written by hand, which the interpreter leaves out


def as_halves(word: str, low: str, high: str) -> str:
    """PTX that moves the four E4M3 of a word into two registers of float16 each, as 2^-8 of them; registers s and t."""
    return (
        f"prmt.b32 s, {word}, 0, 0x1404;\nprmt.b32 t, {word}, 0, 0x3424;\n"
        f"shr.u32 {low}, s, 1;\nshr.u32 {high}, t, 1;\n"
        f"and.b32 {low}, {low}, 0x3f803f80;\nand.b32 {high}, {high}, 0x3f803f80;\n"
        f"lop3.b32 {low}, s, 0x80008000, {low}, 0xea;\nlop3.b32 {high}, t, 0x80008000, {high}, 0xea;\n"
    )


# Four numbers, as float16
_FOUR = "{ .reg .b32 a, b, s, t;\n" + as_halves("$2", "a", "b") + "mov.b32 $0, a;\nmov.b32 $1, b; }"
# Of two pairs, for two tokens: the numbers of the even dimension, and of the odd one, as float16
_EVEN_NATIVE = """{
    .reg .b32 t;
    .reg .b16 numbers, nothing;
    prmt.b32 t, $1, 0, 0x4420;
    mov.b32 {numbers, nothing}, t;
    cvt.rn.f16x2.e4m3x2 $0, numbers;
}"""
_ODD_NATIVE = _EVEN_NATIVE.replace("0x4420", "0x4431")
_EVEN = """{
    .reg .b32 a, s;
    prmt.b32 a, $1, 0, 0x2404;
    shr.u32 s, a, 1;
    and.b32 s, s, 0x3f803f80;
    lop3.b32 $0, a, 0x80008000, s, 0xea;
}"""
_ODD = _EVEN.replace("0x2404", "0x3414")
_ASM_FOUR: tl.constexpr = tl.constexpr(_FOUR)
_ASM_EVEN_NATIVE: tl.constexpr = tl.constexpr(_EVEN_NATIVE)
_ASM_ODD_NATIVE: tl.constexpr = tl.constexpr(_ODD_NATIVE)
_ASM_EVEN: tl.constexpr = tl.constexpr(_EVEN)
_ASM_ODD: tl.constexpr = tl.constexpr(_ODD)


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
    elif FORM == 3:
        x = tl.inline_asm_elementwise(_ASM_FOUR, "=r,=r,r", [x], dtype=tl.float16, is_pure=True, pack=4)
    return x


@triton.jit
def in_pairs(cache, PAIRED: tl.constexpr):
    """The cache of values as it is loaded: E4M3 perhaps in pairs, each of two neighbouring dimensions.

    The matrix units take neighbouring tokens side by side in a register, and from shared memory 16 bits at a time are
    turned so: bytes would be read one by one.
    """
    if PAIRED:
        return cache.to(tl.pointer_type(tl.uint16))
    else:
        return cache


@triton.jit
def _apart(pairs, FORM: tl.constexpr):
    """The numbers of even dimensions, and of odd ones."""
    if FORM == 1:
        even = (((pairs & 0x80) << 8) | ((pairs & 0x7F) << 7)).to(tl.float16, bitcast=True)
        return even, ((pairs & 0x8000) | ((pairs & 0x7F00) >> 1)).to(tl.float16, bitcast=True)
    else:
        even_code: tl.constexpr = _ASM_EVEN_NATIVE if FORM == 2 else _ASM_EVEN
        odd_code: tl.constexpr = _ASM_ODD_NATIVE if FORM == 2 else _ASM_ODD
        even = tl.inline_asm_elementwise(even_code, "=r,r", [pairs], dtype=tl.float16, is_pure=True, pack=2)
        return even, tl.inline_asm_elementwise(odd_code, "=r,r", [pairs], dtype=tl.float16, is_pure=True, pack=2)


@triton.jit
def add_weighted(p, v, acc, odd, FORM: tl.constexpr, PAIRED: tl.constexpr):
    """Sums of values by the weights p [rows, tokens], added to acc [rows, dims].

    Of pairs v [tokens, dims / 2] those of even dimensions are added to acc, of odd ones to odd, both [rows, dims / 2].
    """
    if PAIRED:
        even_v, odd_v = _apart(v, FORM)
        p16 = p.to(tl.float16)
        acc = tl.dot(p16, even_v, acc)
        odd = tl.dot(p16, odd_v, odd)
    else:
        wide = read_kv(v, FORM)
        acc = tl.dot(p.to(wide.dtype), wide, acc)
    return acc, odd


@triton.jit
def in_order(acc, odd, PAIRED: tl.constexpr):
    """The sums of all dimensions in their order: [rows, dims]."""
    if PAIRED:
        return tl.reshape(tl.join(acc, odd), (acc.shape[0], 2 * acc.shape[1]))
    else:
        return acc


@triton.jit
def unit(FORM: tl.constexpr):
    """What `read_kv`'s results are to be multiplied with beside the scale."""
    if FORM == 1 or FORM == 3:
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
