"""Weights of 8 and 4 bits inside the kernels: how bytes become values of the activations' type.

The layout is `kernels.quant_linear`'s. FORM is as `FORMS` says. GROUP inputs and ROWS output rows have one scale; ZERO
is 0 without zero points, 1 with integer ones, 2 with offsets.

The matrix units want bfloat16. With ASM four bytes at a time are moved into place in registers, without a conversion:
an integer of 4 bits is put behind the exponent of 128, which is 128 plus that integer, and E4M3's bits are put where
bfloat16 has its exponent's low bits and its mantissa's high ones, which is the value times 2^-120, subnormal ones too.
So FP8 weights need no card that knows FP8. Other types, and the interpreter, take the values by arithmetic.
"""

from __future__ import annotations

import triton
import triton.language as tl

from firsttoken.kernels.quant_forms import HALF_RUN, QuantForm

FORMS: dict[QuantForm, int] = {"int4": 1, "int8": 2, "fp8": 3}
HALF: tl.constexpr = tl.constexpr(HALF_RUN)

_LOW4 = """{
    .reg .b32 t, top;
    and.b32 t, $2, 0x0f0f0f0f;
    mov.b32 top, 0x43434343;
    prmt.b32 $0, t, top, 0x4140;
    prmt.b32 $1, t, top, 0x4342;
}"""
_HIGH4 = _LOW4.replace("and.b32 t, $2,", "shr.u32 t, $2, 4;\n    and.b32 t, t,")
_INT8 = """{
    .reg .b32 l, h, a, b, c, d, one, sixteen, top, down, far;
    and.b32 l, $2, 0x0f0f0f0f;
    shr.u32 h, $2, 4;
    and.b32 h, h, 0x0f0f0f0f;
    mov.b32 one, 0x3f803f80;
    mov.b32 sixteen, 0x41804180;
    mov.b32 top, 0x43434343;
    mov.b32 down, 0xc300c300;
    mov.b32 far, 0xc500c500;
    prmt.b32 a, l, top, 0x4140;
    prmt.b32 b, l, top, 0x4342;
    prmt.b32 c, h, top, 0x4140;
    prmt.b32 d, h, top, 0x4342;
    fma.rn.bf16x2 a, a, one, down;
    fma.rn.bf16x2 b, b, one, down;
    fma.rn.bf16x2 c, c, sixteen, far;
    fma.rn.bf16x2 d, d, sixteen, far;
    fma.rn.bf16x2 $0, c, one, a;
    fma.rn.bf16x2 $1, d, one, b;
}"""
_FP8 = """{
    .reg .b32 a, b, s, t, none;
    mov.b32 none, 0;
    prmt.b32 a, $2, none, 0x1404;
    prmt.b32 b, $2, none, 0x3424;
    shr.u32 s, a, 4;
    shr.u32 t, b, 4;
    and.b32 s, s, 0x07f007f0;
    and.b32 t, t, 0x07f007f0;
    lop3.b32 $0, a, 0x80008000, s, 0xea;
    lop3.b32 $1, b, 0x80008000, t, 0xea;
}"""
_ONES = """{
    mov.b32 $0, 0x3f803f80;
    mov.b32 $1, 0x3f803f80;
}"""


def _with_scale(code: str, taken: tuple[str, str], added: tuple[str, str]) -> str:
    """Bytes as `code` makes them, less what is `taken` off (exactly), times a scale ($3, $4), and what is `added`."""
    body = code.rstrip("}").replace("$0", "p").replace("$1", "q")
    body = body.replace("{", "{\n    .reg .b32 p, q, same, none, down, far_down;", 1)
    return f"""{body}
    mov.b32 same, 0x3f803f80;
    mov.b32 none, 0x80008000;
    mov.b32 down, 0xc300c300;
    mov.b32 far_down, 0xc308c308;
    fma.rn.bf16x2 p, p, same, {taken[0]};
    fma.rn.bf16x2 q, q, same, {taken[1]};
    fma.rn.bf16x2 $0, p, $3, {added[0]};
    fma.rn.bf16x2 $1, q, $4, {added[1]};
}}"""


def _by_zero(code: str, middle: str, above: str) -> tuple[str, str, str]:
    """`_with_scale` for each ZERO. `above` takes off what `code` makes values too large, `middle` 8 or 128 besides."""
    given, none = ("$5", "$6"), ("none", "none")
    return (
        _with_scale(code, (middle, middle), none),
        _with_scale(code, given, none),
        _with_scale(code, (above, above), given),
    )


_SCALED = {  # by form and whether it is the high halves, then by ZERO
    (1, False): _by_zero(_LOW4, "far_down", "down"),
    (1, True): _by_zero(_HIGH4, "far_down", "down"),
    (2, False): _by_zero(_INT8.replace("down", "low_down"), "down", "none"),
}
# From here on a word of four bytes becomes four float32
_LOW4_WIDE = """{
    .reg .b32 t, top;
    and.b32 t, $4, 0x0f0f0f0f;
    mov.b32 top, 0x00004300;
    prmt.b32 $0, t, top, 0x5044;
    prmt.b32 $1, t, top, 0x5144;
    prmt.b32 $2, t, top, 0x5244;
    prmt.b32 $3, t, top, 0x5344;
}"""
_HIGH4_WIDE = _LOW4_WIDE.replace("and.b32 t, $4,", "shr.u32 t, $4, 4;\n    and.b32 t, t,")
_INT8_WIDE = """{
    .reg .b32 a, b, c, d;
    shl.b32 a, $4, 15;
    shl.b32 b, $4, 7;
    shr.u32 c, $4, 1;
    shr.u32 d, $4, 9;
    lop3.b32 $0, a, 0x007f8000, 0x43800000, 0xea;
    lop3.b32 $1, b, 0x007f8000, 0x43800000, 0xea;
    lop3.b32 $2, c, 0x007f8000, 0x43800000, 0xea;
    lop3.b32 $3, d, 0x007f8000, 0x43800000, 0xea;
}"""
_HALVES = """
    .reg .b16 h0, h1, h2, h3;
    mov.b32 {h0, h1}, a;
    mov.b32 {h2, h3}, b;
    cvt.f32.f16 $0, h0;
    cvt.f32.f16 $1, h1;
    cvt.f32.f16 $2, h2;
    cvt.f32.f16 $3, h3;
}"""
_FP8_WIDE = (
    """{
    .reg .b32 a, b, s, t, none;
    mov.b32 none, 0;
    prmt.b32 a, $4, none, 0x1404;
    prmt.b32 b, $4, none, 0x3424;
    shr.u32 s, a, 1;
    shr.u32 t, b, 1;
    and.b32 s, s, 0x3f803f80;
    and.b32 t, t, 0x3f803f80;
    lop3.b32 a, a, 0x80008000, s, 0xea;
    lop3.b32 b, b, 0x80008000, t, 0xea;"""
    + _HALVES
)
_FP8_NATIVE = (
    """{
    .reg .b32 a, b;
    .reg .b16 low, high;
    mov.b32 {low, high}, $4;
    cvt.rn.f16x2.e4m3x2 a, low;
    cvt.rn.f16x2.e4m3x2 b, high;"""
    + _HALVES
)
_ASM_LOW4_WIDE: tl.constexpr = tl.constexpr(_LOW4_WIDE)
_ASM_HIGH4_WIDE: tl.constexpr = tl.constexpr(_HIGH4_WIDE)
_ASM_INT8_WIDE: tl.constexpr = tl.constexpr(_INT8_WIDE)
_ASM_FP8_WIDE: tl.constexpr = tl.constexpr(_FP8_WIDE)
_ASM_FP8_NATIVE: tl.constexpr = tl.constexpr(_FP8_NATIVE)
_ASM_ONES: tl.constexpr = tl.constexpr(_ONES)
_ASM_LOW4: tl.constexpr = tl.constexpr(_LOW4)
_ASM_HIGH4: tl.constexpr = tl.constexpr(_HIGH4)
_ASM_INT8: tl.constexpr = tl.constexpr(_INT8)
_ASM_FP8: tl.constexpr = tl.constexpr(_FP8)


@triton.constexpr_function
def values_a_byte(form):
    return 2 if form == 1 else 1


@triton.constexpr_function
def unit(form, asm):
    """The square root of what `values` of E4M3 are to be multiplied with: the whole would overflow with a scale."""
    return 2.0**60 if form == 3 and asm else 1.0


@triton.constexpr_function
def added(form, zero, asm):
    """What `values` of an integer are above it, and above zero where it has no zero point or offset."""
    return (128.0 if form == 1 and asm else 0.0) + (0.0 if zero else 8.0 if form == 1 else 128.0)


@triton.jit
def inputs(first, COUNT: tl.constexpr, FORM: tl.constexpr):
    """[COUNT] the inputs that COUNT bytes from byte `first` on stand for: of 4 bits those of the low halves."""
    b = tl.arange(0, COUNT)
    if FORM == 1:
        return 2 * first + b // HALF * (2 * HALF) + b % HALF
    else:
        return first + b


@triton.jit
def values(tile, HIGH: tl.constexpr, FORM: tl.constexpr, ASM: tl.constexpr, DTYPE: tl.constexpr):
    """A tile of bytes as values of DTYPE, see `unit` and `added`; of 4 bits the low or the high halves."""
    if ASM:
        if FORM == 3:
            code: tl.constexpr = _ASM_FP8
        elif FORM == 2:
            code: tl.constexpr = _ASM_INT8
        elif HIGH:
            code: tl.constexpr = _ASM_HIGH4
        else:
            code: tl.constexpr = _ASM_LOW4
        return tl.inline_asm_elementwise(code, "=r,=r,r", [tile], dtype=tl.bfloat16, is_pure=True, pack=4)
    elif FORM == 3:
        bits = tile.to(tl.int32)
        half = ((bits & 0x80) << 8) | ((bits & 0x7F) << 7)  # float16, 2^-8 of the value
        return (half.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32) * 256.0).to(DTYPE)
    else:
        whole = tile.to(tl.int32)
        if FORM == 1:
            whole = (whole >> 4) if HIGH else (whole & 15)
        return whole.to(tl.float32).to(DTYPE)


@triton.jit
def _spread(grid, tile):
    """[BN, G] -> [BN, COUNT]: one number for each of a group's bytes."""
    BN: tl.constexpr = tile.shape[0]
    G: tl.constexpr = grid.shape[1]
    EACH: tl.constexpr = tile.shape[1] // G
    return tl.reshape(tl.broadcast_to(grid[:, :, None], (BN, G, EACH)), (BN, G * EACH))


@triton.constexpr_function
def _scaled_code(form, high, zero):
    return _SCALED[form, high][zero]


@triton.jit
def scaled(
    tile,  # [BN, COUNT] bytes of integers
    scale,  # [BN, G] of as many groups as the tile has
    zero,  # [BN, G]
    HIGH: tl.constexpr,
    FORM: tl.constexpr,
    ZERO: tl.constexpr,
    ASM: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """The weights that a tile of bytes stands for, rounded to DTYPE; of 4 bits the low or the high halves."""
    if ASM:
        code: tl.constexpr = _scaled_code(FORM, HIGH, ZERO)
        s = _spread(scale.to(tl.bfloat16), tile)
        if ZERO == 0:
            return tl.inline_asm_elementwise(code, "=&r,=&r,r,r,r", [tile, s], dtype=tl.bfloat16, is_pure=True, pack=4)
        else:
            z = zero.to(tl.float32)
            if ZERO == 1:  # whole numbers up to 255: exact
                z = -(z + added(FORM, ZERO, ASM))
            z = _spread(z.to(tl.bfloat16), tile)
            return tl.inline_asm_elementwise(
                code, "=&r,=&r,r,r,r,r,r", [tile, s, z], dtype=tl.bfloat16, is_pure=True, pack=4
            )
    else:
        v = values(tile, HIGH, FORM, False, tl.float32) - added(FORM, ZERO, False)
        z = _spread(zero.to(tl.float32), tile)
        if ZERO == 1:
            v -= z
        v *= _spread(scale.to(tl.float32), tile)
        return (v + z).to(DTYPE) if ZERO == 2 else v.to(DTYPE)


@triton.jit
def ones(tile, ASM: tl.constexpr, DTYPE: tl.constexpr):
    """As many ones as the tile has bytes. Made of it for the compiler's sake, which else would lay them out otherwise.

    Activations that meet both layouts would be copied twice, and not ahead of time.
    """
    if ASM:
        return tl.inline_asm_elementwise(_ASM_ONES, "=r,=r,r", [tile], dtype=tl.bfloat16, is_pure=True, pack=4)
    else:
        return (tile & 0).to(DTYPE) + 1


@triton.constexpr_function
def above(form, zero, by):
    """What `four` of an integer are above it, and above zero where it has no zero point or offset."""
    return (0.0 if by == 0 else 256.0 if form == 2 else 128.0) + (0.0 if zero else 8.0 if form == 1 else 128.0)


@triton.constexpr_function
def factor(form, by):
    """What `four` of E4M3 are to be multiplied with."""
    return 256.0 if form == 3 and by == 1 else 1.0


@triton.jit
def four(words, HIGH: tl.constexpr, FORM: tl.constexpr, BY: tl.constexpr):
    """The four bytes of each word in float32, see `above` and `factor`; of 4 bits the low or the high halves.

    BY is 0 for arithmetic, as the interpreter has; 1 where bits are moved; 2 where the card converts E4M3 itself.
    """
    if BY == 0:
        return (
            values(words & 255, HIGH, FORM, False, tl.float32),
            values((words >> 8) & 255, HIGH, FORM, False, tl.float32),
            values((words >> 16) & 255, HIGH, FORM, False, tl.float32),
            values((words >> 24) & 255, HIGH, FORM, False, tl.float32),
        )
    else:
        if FORM == 2:
            code: tl.constexpr = _ASM_INT8_WIDE
        elif FORM == 3:
            code: tl.constexpr = _ASM_FP8_NATIVE if BY == 2 else _ASM_FP8_WIDE
        elif HIGH:
            code: tl.constexpr = _ASM_HIGH4_WIDE
        else:
            code: tl.constexpr = _ASM_LOW4_WIDE
        return tl.inline_asm_elementwise(
            code,
            "=r,=r,=r,=r,r",
            [words],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=True,
            pack=1,
        )
