"""Weights of 8 and 4 bits inside the product kernels: their words, their scales and the values in them.

The layout is `kernels.quant_linear`'s. FORM is 0 for a dense weight, else as `FORMS` says. GROUP inputs and ROWS output
rows have one scale; ZERO is 0 without zero points, 1 with integer ones, 2 with offsets.

Values become float32 without a conversion, which would run at a quarter of the rate: an integer is put behind the
exponent of `bias(FORM)`, which is the value's own plus that bias; E4M3 bits are put where float16 has its exponent's
low bits, which is the value over 256, subnormal ones too. So FP8 weights need no card that knows FP8.
"""

from __future__ import annotations

import triton
import triton.language as tl

from firsttoken.kernels.quant_linear import QuantForm

FORMS: dict[QuantForm, int] = {"int4": 1, "int8": 2, "fp8": 3}


@triton.constexpr_function
def values_a_word(form):
    return {0: 1, 1: 8, 2: 4, 3: 4}[form]


@triton.constexpr_function
def bias(form):
    """What `value` adds to an integer."""
    return {0: 0, 1: 16, 2: 256, 3: 0}[form]


@triton.constexpr_function
def middle(form):
    """The integer that stands for zero where there are no points."""
    return {0: 0, 1: 8, 2: 128, 3: 0}[form]


@triton.jit
def value(words, V: tl.constexpr, FORM: tl.constexpr):
    """Value V of each word, plus `bias` (integers) or over 256 (fp8), as float32."""
    if FORM == 1:
        SHIFT: tl.constexpr = 19 - 4 * V
        at = words << SHIFT if SHIFT >= 0 else words >> -SHIFT
        return ((at & 0x780000) | 0x41800000).to(tl.float32, bitcast=True)
    elif FORM == 2:
        SHIFT: tl.constexpr = 15 - 8 * V
        at = words << SHIFT if SHIFT >= 0 else words >> -SHIFT
        return ((at & 0x7F8000) | 0x43800000).to(tl.float32, bitcast=True)
    else:
        at = words if V % 2 == 1 else words << 8  # two values at a time, in the upper byte of each half
        halves = (at & -0x7FFF8000) | ((at >> 1) & 0x3F803F80)
        half = halves >> 16 if V >= 2 else halves
        return half.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def inputs(first, V: tl.constexpr, COUNT: tl.constexpr, FORM: tl.constexpr):
    """[COUNT] the inputs that value V of COUNT words from word `first` on stands for; `first` begins a run."""
    PER: tl.constexpr = values_a_word(FORM)
    u = tl.arange(0, COUNT)
    if PER == 1:
        return first + u
    else:
        return first * PER + u // 4 * (4 * PER) + 4 * V + u % 4


@triton.jit
def grid(
    scale,
    rows,  # [BN] output rows
    rows_mask,
    first,  # word
    K: tl.constexpr,
    COUNT: tl.constexpr,  # words
    FORM: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The scales or zeros of a tile: [BN, 1] where it lies in one group, else [BN, COUNT]."""
    PER: tl.constexpr = values_a_word(FORM)
    GROUPS: tl.constexpr = (K + GROUP - 1) // GROUP
    row = rows // ROWS * GROUPS
    if GROUP % (COUNT * PER) == 0 or GROUP >= K:
        return tl.load(scale + row + first * PER // GROUP, mask=rows_mask, other=0).to(tl.float32)[:, None]
    else:
        word = first + tl.arange(0, COUNT)
        mask = rows_mask[:, None] & (word * PER < K)[None, :]
        return tl.load(scale + row[:, None] + (word * PER // GROUP)[None, :], mask=mask, other=0).to(tl.float32)


@triton.jit
def scaled(total, scale, zero, count, FORM: tl.constexpr, ZERO: tl.constexpr):
    """Sums of `value` times activations [BN, COUNT], and of the activations alone: -> those of the weights."""
    if FORM == 3:
        return total * (scale * 256.0)
    elif ZERO == 0:
        return (total - (bias(FORM) + middle(FORM)) * count) * scale
    elif ZERO == 1:
        return (total - (bias(FORM) + zero) * count) * scale
    else:
        return (total - bias(FORM) * count) * scale + zero * count
