"""Activations in fixed point, and their products with 16 bytes of packed weights in few instructions.

The activations that meet 16 bytes of a row (a run) are brought to one power of two. Integers of 8 and 4 bits multiply
them as integers of 15 bits, two bytes each: four products an instruction, and exact. E4M3 multiplies them as float16:
two products an instruction, in sums of eight. What rounding leaves is less than bfloat16's own: 2^-14 of the largest
activation of a run, or 2^-11 of each.

`asm` is False for the interpreter and for types other than bfloat16, which take the same numbers by arithmetic.
"""

from __future__ import annotations

import triton
import triton.language as tl

from firsttoken.kernels.gpu.e4m3 import as_halves
from firsttoken.kernels.gpu.packed import four

LEAST: tl.constexpr = tl.constexpr(20 << 23)  # exponents below count as this one: their inverse would be none
LARGEST: tl.constexpr = tl.constexpr(255 << 23)  # what is no number has it
INT_POWER, HALF_POWER = tl.constexpr(13), tl.constexpr(3)  # of two: what a run's largest activation is brought to
ROUND: tl.constexpr = tl.constexpr(12582912.0)  # added to a float32 leaves the nearest integer in its low bits

# Four float32 with ROUND added: the low bytes of their integers, and the high ones
_BYTES = """{
    .reg .b32 r, p;
    prmt.b32 r, $2, $3, 0x5140;
    prmt.b32 p, $4, $5, 0x5140;
    prmt.b32 $0, r, p, 0x7632;
    prmt.b32 $1, r, p, 0x5410;
}"""
_PAIR = "cvt.rn.f16x2.f32 $0, $2, $1;"


def _sums(total: str, kind: str, words: str, first: int) -> str:
    """Sixteen products, added up: `words` 0 to 3 with the operands from `first` on."""
    return "".join(f"dp4a.u32.{kind} {total}, {words}{i}, ${first + i}, {total if i else 0};\n" for i in range(4))


def _each(line: str) -> str:
    return "".join(line.format(i=i, word=f"${1 + i}") + "\n" for i in range(4))


# Operands: four words, the activations' high bytes (of 4 bits for both halves), then their low bytes likewise
_INT8 = (
    "{ .reg .b32 w<4>; .reg .s32 h, l;\n"
    + _each("mov.b32 w{i}, {word};")
    + _sums("h", "s32", "w", 5)
    + _sums("l", "u32", "w", 9)
    + "mad.lo.s32 $0, h, 256, l; }"
)
# The high halves stay where they are, so their sums are sixteen times as large, and so is the result
_INT4 = (
    "{ .reg .b32 a<4>, b<4>; .reg .s32 h, l, g, k;\n"
    + _each("and.b32 a{i}, {word}, 0x0f0f0f0f;\nand.b32 b{i}, {word}, 0xf0f0f0f0;")
    + _sums("h", "s32", "a", 5)
    + _sums("g", "s32", "b", 9)
    + _sums("l", "u32", "a", 13)
    + _sums("k", "u32", "b", 17)
    + "mad.lo.s32 h, h, 256, l;\nmad.lo.s32 g, g, 256, k;\nmad.lo.s32 $0, h, 16, g; }"
)
# Operands: four words, the first pairs of the activations that meet them, then the second ones
_FP8 = (
    "{ .reg .b32 a<4>, b<4>, s, t; .reg .b16 u, v; .reg .f32 f, g;\n"
    + "TAKE"
    + "mul.rn.f16x2 s, a0, $5;\nmul.rn.f16x2 t, b0, $9;\n"
    + "".join(f"fma.rn.f16x2 s, a{i}, ${5 + i}, s;\nfma.rn.f16x2 t, b{i}, ${9 + i}, t;\n" for i in range(1, 4))
    + "add.rn.f16x2 s, s, t;\nmov.b32 {u, v}, s;\ncvt.f32.f16 f, u;\ncvt.f32.f16 g, v;\nadd.f32 $0, f, g; }"
)
_FP8_NATIVE = _FP8.replace(
    "TAKE", _each("mov.b32 {{u, v}}, {word};\ncvt.rn.f16x2.e4m3x2 a{i}, u;\ncvt.rn.f16x2.e4m3x2 b{i}, v;")
)
_FP8_BITS = _FP8.replace("TAKE", "".join(as_halves(f"${1 + i}", f"a{i}", f"b{i}") for i in range(4)))
_FIXED_BYTES: tl.constexpr = tl.constexpr(_BYTES)
_FIXED_PAIR: tl.constexpr = tl.constexpr(_PAIR)
_FIXED_INT8: tl.constexpr = tl.constexpr(_INT8)
_FIXED_INT4: tl.constexpr = tl.constexpr(_INT4)
_FIXED_FP8_NATIVE: tl.constexpr = tl.constexpr(_FP8_NATIVE)
_FIXED_FP8_BITS: tl.constexpr = tl.constexpr(_FP8_BITS)
_TO_INT12: tl.constexpr = tl.constexpr("=r,r,r,r,r,r,r,r,r,r,r,r,r")
_TO_FLOAT12: tl.constexpr = tl.constexpr("=f,r,r,r,r,r,r,r,r,r,r,r,r")
_TO_INT20: tl.constexpr = tl.constexpr("=r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r")


@triton.jit
def apart(v):
    """Each fourth element of [..., 4 runs], from the first, second, third and fourth on: four times [..., runs]."""
    if len(v.shape) == 1:
        pairs = tl.reshape(v, (v.shape[0] // 4, 2, 2))
    else:
        pairs = tl.reshape(v, (v.shape[0], v.shape[1] // 4, 2, 2))
    even, odd = tl.split(pairs)
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def power(size, FORM: tl.constexpr, ASM: tl.constexpr, NATIVE: tl.constexpr):
    """What a run whose largest activation is `size` is multiplied with, and the unit of its products then."""
    exponent = tl.maximum(size.to(tl.int32, bitcast=True) & LARGEST, LEAST)
    to: tl.constexpr = HALF_POWER if FORM == 3 else INT_POWER
    by = ((127 << 23) - (exponent - ((127 + to) << 23))).to(tl.float32, bitcast=True)
    unit = (exponent - (to << 23)).to(tl.float32, bitcast=True)
    if FORM == 1:
        unit *= 0.0625  # see _INT4
    elif FORM == 3 and ASM and not NATIVE:
        unit *= 256.0  # see _FP8_BITS
    return by, tl.where(exponent == LARGEST, float("nan"), unit)


@triton.jit
def _fixed4(q, by, FORM: tl.constexpr, ASM: tl.constexpr):
    a, b, c, d = q[0] * by, q[1] * by, q[2] * by, q[3] * by
    if FORM == 3:
        if ASM:
            return (
                tl.inline_asm_elementwise(_FIXED_PAIR, "=r,f,f", [a, b], dtype=tl.int32, is_pure=True, pack=1),
                tl.inline_asm_elementwise(_FIXED_PAIR, "=r,f,f", [c, d], dtype=tl.int32, is_pure=True, pack=1),
            )
        else:
            return (_half(a), _half(b)), (_half(c), _half(d))
    else:
        a, b, c, d = a + ROUND, b + ROUND, c + ROUND, d + ROUND
        if ASM:
            return tl.inline_asm_elementwise(
                _FIXED_BYTES, "=r,=r,r,r,r,r", [a, b, c, d], dtype=(tl.int32, tl.int32), is_pure=True, pack=1
            )
        else:
            return (a - ROUND, b - ROUND), (c - ROUND, d - ROUND)


@triton.jit
def _half(v):
    return v.to(tl.float16).to(tl.float32)


@triton.jit
def fixed(h, by, FORM: tl.constexpr, ASM: tl.constexpr):
    """Four quadruples as `times` takes them: what comes first of each of the four, and what comes second."""
    a, b = _fixed4(h[0], by, FORM, ASM), _fixed4(h[1], by, FORM, ASM)
    c, d = _fixed4(h[2], by, FORM, ASM), _fixed4(h[3], by, FORM, ASM)
    return (a[0], b[0], c[0], d[0]), (a[1], b[1], c[1], d[1])


@triton.jit
def _plain4(word, first, second, HIGH: tl.constexpr, FORM: tl.constexpr):
    v = four(word, HIGH, FORM, 0)
    low = v[0] * first[0][None, :] + v[1] * first[1][None, :]
    return low + v[2] * second[0][None, :] + v[3] * second[1][None, :]


@triton.jit
def _plain(w, x, HIGH: tl.constexpr, FORM: tl.constexpr):
    a = _plain4(w[0], x[0][0], x[1][0], HIGH, FORM) + _plain4(w[1], x[0][1], x[1][1], HIGH, FORM)
    return a + _plain4(w[2], x[0][2], x[1][2], HIGH, FORM) + _plain4(w[3], x[0][3], x[1][3], HIGH, FORM)


@triton.jit
def times(w, x, y, FORM: tl.constexpr, ASM: tl.constexpr, NATIVE: tl.constexpr):
    """Sums of runs, in their units, float32 [rows, runs]: four words w, each [rows, runs], with the `fixed` activations
    x of their low halves or of all their bytes, and y of the high halves. NATIVE: the card converts E4M3 itself.
    """
    if ASM:
        a0, a1, a2, a3 = x[0][0][None, :], x[0][1][None, :], x[0][2][None, :], x[0][3][None, :]
        b0, b1, b2, b3 = x[1][0][None, :], x[1][1][None, :], x[1][2][None, :], x[1][3][None, :]
        if FORM == 1:
            c0, c1, c2, c3 = y[0][0][None, :], y[0][1][None, :], y[0][2][None, :], y[0][3][None, :]
            d0, d1, d2, d3 = y[1][0][None, :], y[1][1][None, :], y[1][2][None, :], y[1][3][None, :]
            given = [w[0], w[1], w[2], w[3], a0, a1, a2, a3, c0, c1, c2, c3, b0, b1, b2, b3, d0, d1, d2, d3]
            whole = tl.inline_asm_elementwise(_FIXED_INT4, _TO_INT20, given, dtype=tl.int32, is_pure=True, pack=1)
            return whole.to(tl.float32)
        else:
            given = [w[0], w[1], w[2], w[3], a0, a1, a2, a3, b0, b1, b2, b3]
            if FORM == 2:
                whole = tl.inline_asm_elementwise(_FIXED_INT8, _TO_INT12, given, dtype=tl.int32, is_pure=True, pack=1)
                return whole.to(tl.float32)
            else:
                code: tl.constexpr = _FIXED_FP8_NATIVE if NATIVE else _FIXED_FP8_BITS
                return tl.inline_asm_elementwise(code, _TO_FLOAT12, given, dtype=tl.float32, is_pure=True, pack=1)
    elif FORM == 1:
        return (_plain(w, x, False, FORM) + _plain(w, y, True, FORM)) * 16.0
    else:
        return _plain(w, x, False, FORM)
