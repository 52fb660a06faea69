"""Products of one row with a weight of 8 or 4 bits, as `quant_matvec`, with the activations in fixed point.

A program owns `BN` output features and walks K in tiles of `BK` inputs. Each thread has 16 bytes of each of its rows
and the run of activations that they meet, brings that run to fixed point once (see `fixed_point`) and multiplies it
with all of the rows, which costs fewer instructions a weight than float32 does. The next tile or two are on their way
meanwhile. Zeros are taken back by the activations' sum, and kernels overlap, as in `quant_matvec`.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from firsttoken.kernels.gpu.finish_row import finish_row, whole
from firsttoken.kernels.gpu.fixed_point import apart, fixed, power, times
from firsttoken.kernels.gpu.packed import above, values_a_byte
from firsttoken.kernels.gpu.run_activations import floats, largest, product, run_activations, total_of


# Addresses are one of the program's and what all programs have alike, so that rows lie at constants from each other.
@triton.jit
def _weights(w, first, turn, N: tl.constexpr, KW: tl.constexpr, BN: tl.constexpr, COUNT: tl.constexpr):
    """The [BN, COUNT] words of a tile of the rows from `first` on; zeros past the edges."""
    i, u = tl.arange(0, BN), tl.arange(0, COUNT)
    where = (w + first.to(tl.int64) * KW + turn * COUNT) + (i[:, None] * KW + u[None, :])
    if N % BN and KW % COUNT:
        mask = (first % N + i < N)[:, None] & (turn * COUNT + u < KW)[None, :]
        return tl.load(where, mask=mask, other=0, eviction_policy="evict_first")
    elif N % BN:
        return tl.load(where, mask=(first % N + i < N)[:, None], other=0, eviction_policy="evict_first")
    elif KW % COUNT:
        return tl.load(where, mask=(turn * COUNT + u < KW)[None, :], other=0, eviction_policy="evict_first")
    else:
        return tl.load(where, eviction_policy="evict_first")


@triton.jit
def _grid(
    grid, first, run, N: tl.constexpr, K: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr
):
    """The scales or zeros of the rows from `first` on at the runs' first inputs: [BN, runs]."""
    GROUPS: tl.constexpr = (K + GROUP - 1) // GROUP
    i, group = tl.arange(0, BN), tl.minimum(run, K - 1) // GROUP
    if ROWS == 1:
        where = (grid + first.to(tl.int64) * GROUPS) + (i[:, None] * GROUPS + group[None, :])
    else:
        where = grid + (((first + i) // ROWS)[:, None] * GROUPS + group[None, :])
    if N % BN:
        return tl.load(where, mask=(first % N + i < N)[:, None], other=0)
    else:
        return tl.load(where)


@triton.jit
def _add(
    acc,  # [BN, runs]
    words,  # [BN, COUNT]
    x,  # fixed
    y,
    unit,  # [runs]
    total,
    scale,  # [BN, runs]
    zero,
    FORM: tl.constexpr,
    ZERO: tl.constexpr,
    GROUPED: tl.constexpr,
    ASM: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """A tile times the activations, added up."""
    part = times(apart(words), x, y, FORM, ASM, NATIVE) * unit[None, :]
    if not GROUPED:
        return acc + part
    if ZERO == 1:
        part -= total[None, :] * zero.to(tl.float32)
    elif FORM != 3:
        part -= total[None, :] * above(FORM, ZERO, 0)
    acc += part * scale.to(tl.float32)
    if ZERO == 2:
        acc += total[None, :] * zero.to(tl.float32)
    return acc


@triton.jit
def _turn(
    sums,  # acc, acc_up, totals, squares
    tile,  # words, up, and their scales and zeros
    asked,  # activations, of 4 bits those of the low halves and of the high ones; and the norm's weights likewise
    NORM: tl.constexpr,
    FOLDED: tl.constexpr,
    SWIGLU: tl.constexpr,
    FORM: tl.constexpr,
    ZERO: tl.constexpr,
    GROUPED: tl.constexpr,
    ASM: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """One tile's part of the sums."""
    PAIRED: tl.constexpr = FORM == 1
    acc, acc_up, totals, squares = sums
    words, up, s, z, s_up, z_up = tile
    a = floats(asked[0], ASM)
    b = floats(asked[1], ASM) if PAIRED else a
    if NORM:
        squares += total_of(product(a, a))
        if PAIRED:
            squares += total_of(product(b, b))
        if not FOLDED:
            a = product(a, floats(asked[2], ASM))
            b = product(b, floats(asked[3], ASM)) if PAIRED else a
    total = totals
    if FORM != 3:
        total = total_of(a) + total_of(b) if PAIRED else total_of(a)
        totals += total
    size = tl.maximum(largest(a), largest(b)) if PAIRED else largest(a)
    by, unit = power(size, FORM, ASM, NATIVE)
    x = fixed(a, by, FORM, ASM)
    y = fixed(b, by, FORM, ASM) if PAIRED else x
    acc = _add(acc, words, x, y, unit, total, s, z, FORM, ZERO, GROUPED, ASM, NATIVE)
    if SWIGLU:
        acc_up = _add(acc_up, up, x, y, unit, total, s_up, z_up, FORM, ZERO, GROUPED, ASM, NATIVE)
    return acc, acc_up, totals, squares


@triton.jit
def _tile(
    w,
    scale,
    zero,
    first,
    turn,
    N: tl.constexpr,
    K: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PER: tl.constexpr,
    SWIGLU: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    ZERO: tl.constexpr,
):
    """What of the weight a turn needs: words and up words, their scales and zeros."""
    COUNT: tl.constexpr = BK // PER
    run = turn * BK + tl.arange(0, COUNT // 4) * (4 * PER)
    words = _weights(w, first, turn, N, K // PER, BN, COUNT)
    up = _weights(w, first + N, turn, N, K // PER, BN, COUNT) if SWIGLU else words
    s = _grid(scale, first, run, N, K, BN, GROUP, ROWS)
    z = _grid(zero, first, run, N, K, BN, GROUP, ROWS) if ZERO > 0 else s
    s_up = _grid(scale, first + N, run, N, K, BN, GROUP, ROWS) if SWIGLU else s
    z_up = _grid(zero, first + N, run, N, K, BN, GROUP, ROWS) if SWIGLU and ZERO > 0 else s_up
    return words, up, s, z, s_up, z_up


@triton.jit
def quant_fixed_kernel(
    x,  # [1, K]
    w,  # [N, K] bytes, [N, K / 2] of 4 bits, seen as words; with SWIGLU 2 N rows: gate rows, then up rows
    scale,  # [rows of scales, groups]
    zero,  # likewise
    norm_weight,  # [K]
    bias,  # [N] or [2 N]
    residual,  # [1, N]
    out,  # [1, N]
    eps,
    N: tl.constexpr,
    K: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,  # inputs
    AHEAD: tl.constexpr,  # tiles under way beyond the one that is multiplied: 1 or 2
    NORM: tl.constexpr,
    FOLDED: tl.constexpr,  # the norm's weight is already multiplied into w
    SWIGLU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    BIAS: tl.constexpr,
    PDL: tl.constexpr,
    FORM: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    ZERO: tl.constexpr,
    ASM: tl.constexpr,  # see `fixed_point`
    NATIVE: tl.constexpr,
):
    if PDL:
        gdc_launch_dependents()
    PER: tl.constexpr = 4 * values_a_byte(FORM)  # inputs a word
    COUNT: tl.constexpr = BK // PER
    KW: tl.constexpr = K // PER
    TURNS: tl.constexpr = (KW + COUNT - 1) // COUNT
    EVEN: tl.constexpr = KW % COUNT == 0
    DEEP: tl.constexpr = AHEAD == 2 and TURNS > 2
    GROUPED: tl.constexpr = GROUP < K or ZERO == 2
    WEIGHTED: tl.constexpr = NORM and not FOLDED
    first = tl.program_id(0) * BN
    n = first + tl.arange(0, BN)
    n_mask = n < N
    run = tl.arange(0, COUNT // 4) * (4 * PER)  # the first inputs of a tile's runs

    # What does not depend on the kernel before is under way before the wait, and what the end needs before the sums
    tile = _tile(w, scale, zero, first, 0, N, K, BN, BK, PER, SWIGLU, GROUP, ROWS, ZERO)
    tile1 = _tile(w, scale, zero, first, 1, N, K, BN, BK, PER, SWIGLU, GROUP, ROWS, ZERO) if DEEP else tile
    v = run_activations(norm_weight, run, K, EVEN, FORM, ASM) if WEIGHTED else (n, n)
    start = tl.zeros((1,), dtype=tl.int32)
    whole_s = _grid(scale, first, start, N, K, BN, GROUP, ROWS)
    whole_z = _grid(zero, first, start, N, K, BN, GROUP, ROWS) if ZERO > 0 else whole_s
    whole_s_up = _grid(scale, first + N, start, N, K, BN, GROUP, ROWS) if SWIGLU else whole_s
    whole_z_up = _grid(zero, first + N, start, N, K, BN, GROUP, ROWS) if SWIGLU and ZERO > 0 else whole_s_up
    b = tl.load(bias + n, mask=n_mask, other=0.0) if BIAS else n
    b_up = tl.load(bias + N + n, mask=n_mask, other=0.0) if BIAS and SWIGLU else n
    if PDL:
        gdc_wait()
    kept = tl.load(residual + n, mask=n_mask, other=0.0) if RESIDUAL else n
    asked = run_activations(x, run, K, EVEN, FORM, ASM)

    none = tl.zeros((COUNT // 4,), dtype=tl.float32)
    acc = tl.zeros((BN, COUNT // 4), dtype=tl.float32)
    sums = (acc, acc, none, none)
    for turn in range(1, TURNS - DEEP):
        tile2 = _tile(w, scale, zero, first, turn + DEEP, N, K, BN, BK, PER, SWIGLU, GROUP, ROWS, ZERO)
        asked1 = run_activations(x, turn * BK + run, K, EVEN, FORM, ASM)
        v1 = run_activations(norm_weight, turn * BK + run, K, EVEN, FORM, ASM) if WEIGHTED else v
        both = (asked[0], asked[1], v[0], v[1])
        sums = _turn(sums, tile, both, NORM, FOLDED, SWIGLU, FORM, ZERO, GROUPED, ASM, NATIVE)
        if DEEP:
            tile, tile1 = tile1, tile2
        else:
            tile = tile2
        asked, v = asked1, v1
    if DEEP:
        asked1 = run_activations(x, (TURNS - 1) * BK + run, K, EVEN, FORM, ASM)
        v1 = run_activations(norm_weight, (TURNS - 1) * BK + run, K, EVEN, FORM, ASM) if WEIGHTED else v
        both = (asked[0], asked[1], v[0], v[1])
        sums = _turn(sums, tile, both, NORM, FOLDED, SWIGLU, FORM, ZERO, GROUPED, ASM, NATIVE)
        tile, asked, v = tile1, asked1, v1
    both = (asked[0], asked[1], v[0], v[1])
    acc, acc_up, totals, squares = _turn(sums, tile, both, NORM, FOLDED, SWIGLU, FORM, ZERO, GROUPED, ASM, NATIVE)

    y = whole(acc, totals, tl.sum(whole_s, axis=1), tl.sum(whole_z, axis=1), FORM, ZERO, GROUPED, 0)
    y_up = y
    if SWIGLU:
        y_up = whole(acc_up, totals, tl.sum(whole_s_up, axis=1), tl.sum(whole_z_up, axis=1), FORM, ZERO, GROUPED, 0)
    finish_row(y, y_up, squares, b, b_up, kept, out, n, n_mask, eps, K, NORM, SWIGLU, RESIDUAL, BIAS)
