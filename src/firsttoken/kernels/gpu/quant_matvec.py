"""Products of one row with a weight of 8 or 4 bits: bound by the weight's bytes, so each is read once and early.

The same ops as `matvec`, which is for dense weights. A program owns `BN` output features and walks K in tiles of `BK`
inputs, a tile ahead of its arithmetic. Each thread multiplies 16 bytes of a row with the activations that they meet and
keeps one sum a row: so activations, and what the norm and the zeros need of them, are prepared once for all `BN` rows.
Instructions are the next bound after the bytes: a weight may cost about three.

Integers are multiplied with something added (`packed.above`), which the activations' sum takes back: sum((u - z) x) is
sum(u x) less z times sum(x). Overlapping the kernels around it is as in `matvec`.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from firsttoken.kernels.gpu.finish_row import finish_row, whole
from firsttoken.kernels.gpu.packed import above, four, values_a_byte
from firsttoken.kernels.gpu.prefetch import prefetch_l2

RUN: tl.constexpr = tl.constexpr(4)  # words of a row that a thread multiplies at once


@triton.jit
def _grid(grid, rows, rows_mask, k, K: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr):
    """The scales or zeros of rows, for each run's first input k: [BN, runs]."""
    GROUPS: tl.constexpr = (K + GROUP - 1) // GROUP
    at = (rows // ROWS * GROUPS)[:, None] + (tl.minimum(k, K - 1) // GROUP)[None, :]
    return tl.load(grid + at, mask=rows_mask[:, None], other=0)


@triton.jit
def _asked(x, k, K: tl.constexpr, EVEN: tl.constexpr, BY: tl.constexpr):
    """Four bfloat16 from each input k on, as they lie in memory. Other types are not asked for ahead of time."""
    # With `else` throughout: what stands behind an `if` with a return is compiled too, and must return the same type
    if BY == 0:
        return k
    else:
        where = (x + k).to(tl.pointer_type(tl.int64))
        if EVEN:
            return tl.load(where)
        else:
            return tl.load(where, mask=k < K, other=0)


@triton.jit
def _unpacked(x, k, asked, K: tl.constexpr, BY: tl.constexpr):
    """Inputs k, k + 1, k + 2 and k + 3 in float32."""
    if BY == 0:
        mask = k < K
        return (
            tl.load(x + k, mask=mask, other=0.0).to(tl.float32),
            tl.load(x + k + 1, mask=mask, other=0.0).to(tl.float32),
            tl.load(x + k + 2, mask=mask, other=0.0).to(tl.float32),
            tl.load(x + k + 3, mask=mask, other=0.0).to(tl.float32),
        )
    low, high = asked.to(tl.int32), (asked >> 32).to(tl.int32)
    return (
        (low << 16).to(tl.float32, bitcast=True),
        (low & -65536).to(tl.float32, bitcast=True),
        (high << 16).to(tl.float32, bitcast=True),
        (high & -65536).to(tl.float32, bitcast=True),
    )


@triton.jit
def _times(a, b):
    return a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]


@triton.jit
def _sum(a):
    return (a[0] + a[1]) + (a[2] + a[3])


@triton.jit
def _weights(w, at, n_mask, first, words: tl.constexpr, COUNT: tl.constexpr, EVEN: tl.constexpr):
    """The [BN, COUNT] words from word `first` of each row on; zeros past the edges."""
    if EVEN:
        return tl.load(w + at + first, mask=n_mask[:, None], other=0, eviction_policy="evict_first")
    else:
        mask = n_mask[:, None] & (first + tl.arange(0, COUNT) < words)[None, :]
        return tl.load(w + at + first, mask=mask, other=0, eviction_policy="evict_first")


@triton.jit
def _runs(v):
    """Sums of each run of a vector or of rows, which lies in one thread."""
    RUNS: tl.constexpr = v.shape[len(v.shape) - 1] // RUN
    if len(v.shape) == 1:
        return tl.sum(tl.reshape(v, (RUNS, RUN)), axis=1)
    else:
        return tl.sum(tl.reshape(v, (v.shape[0], RUNS, RUN)), axis=2)


@triton.jit
def _dot(part, words, inputs, HIGH: tl.constexpr, FORM: tl.constexpr, BY: tl.constexpr):
    v = four(words, HIGH, FORM, BY)
    part += v[0] * inputs[0][None, :]
    part += v[1] * inputs[1][None, :]
    part += v[2] * inputs[2][None, :]
    part += v[3] * inputs[3][None, :]
    return part


@triton.jit
def _add_products(
    acc,  # [BN, runs] where runs have scales, else [BN, COUNT]
    words,  # [BN, COUNT]
    low,  # four times [COUNT] activations
    high,  # of 4 bits: those of the high halves
    total,  # [runs] the activations' sums
    scale,  # [BN, runs]
    zero,
    FORM: tl.constexpr,
    ZERO: tl.constexpr,
    GROUPED: tl.constexpr,
    BY: tl.constexpr,
):
    """A tile times the activations, added up."""
    part = tl.zeros(words.shape, dtype=tl.float32) if GROUPED else acc
    part = _dot(part, words, low, False, FORM, BY)
    if FORM == 1:
        part = _dot(part, words, high, True, FORM, BY)
    if GROUPED:
        part = _runs(part)
        if ZERO == 1:
            part -= total[None, :] * (above(FORM, ZERO, BY) + zero.to(tl.float32))
        elif FORM != 3:
            part -= total[None, :] * above(FORM, ZERO, BY)
        part = acc + part * scale.to(tl.float32)
        if ZERO == 2:
            part += total[None, :] * zero.to(tl.float32)
    return part


@triton.jit
def quant_matvec_kernel(
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
    AHEAD: tl.constexpr,  # 1: the next tile is on its way to registers while one is multiplied; 0: the first one to L2
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
    BY: tl.constexpr,  # how bytes become numbers, see `packed.four`
):
    if PDL:
        gdc_launch_dependents()
    PER: tl.constexpr = 4 * values_a_byte(FORM)  # inputs a word
    KW: tl.constexpr = K // PER
    COUNT: tl.constexpr = BK // PER
    TURNS: tl.constexpr = (KW + COUNT - 1) // COUNT
    EVEN: tl.constexpr = KW % COUNT == 0
    GROUPED: tl.constexpr = GROUP < K or ZERO == 2
    WEIGHTED: tl.constexpr = NORM and not FOLDED
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    n_mask = n < N
    u = tl.arange(0, COUNT)
    at = n[:, None] * KW + u[None, :]
    w_up = w + N * KW
    run = tl.arange(0, COUNT // RUN) * (RUN * PER)  # the first inputs of a tile's runs
    # The first of the inputs that a word's bytes stand for: of 4 bits their low halves', and the high ones' are 16 on
    k = u // RUN * (RUN * PER) + u % RUN * 4

    if AHEAD == 0:
        if PDL:
            prefetch_l2(w + at)
            if SWIGLU:
                prefetch_l2(w_up + at)
    else:
        words1 = _weights(w, at, n_mask, 0, KW, COUNT, EVEN)
        if SWIGLU:
            up1 = _weights(w_up, at, n_mask, 0, KW, COUNT, EVEN)
    s1 = _grid(scale, n, n_mask, run, K, GROUP, ROWS)
    z1 = _grid(zero, n, n_mask, run, K, GROUP, ROWS) if ZERO > 0 else s1
    s_up1 = _grid(scale, n + N, n_mask, run, K, GROUP, ROWS) if SWIGLU else s1
    z_up1 = _grid(zero, n + N, n_mask, run, K, GROUP, ROWS) if SWIGLU and ZERO > 0 else s_up1
    low_norm1 = _asked(norm_weight, k, K, EVEN, BY) if WEIGHTED else k
    high_norm1 = _asked(norm_weight, k + 4 * RUN, K, EVEN, BY) if WEIGHTED and FORM == 1 else low_norm1
    none = tl.zeros((1,), dtype=tl.int32)
    whole_s = _grid(scale, n, n_mask, none, K, GROUP, ROWS)
    whole_z = _grid(zero, n, n_mask, none, K, GROUP, ROWS) if ZERO > 0 else whole_s
    whole_s_up = _grid(scale, n + N, n_mask, none, K, GROUP, ROWS) if SWIGLU else whole_s
    whole_z_up = _grid(zero, n + N, n_mask, none, K, GROUP, ROWS) if SWIGLU and ZERO > 0 else whole_s_up
    bi = tl.load(bias + n, mask=n_mask, other=0.0) if BIAS else n
    bi_up = tl.load(bias + N + n, mask=n_mask, other=0.0) if BIAS and SWIGLU else n
    if PDL:
        gdc_wait()
    kept = tl.load(residual + n, mask=n_mask, other=0.0) if RESIDUAL else n
    low1 = _asked(x, k, K, EVEN, BY)
    high1 = _asked(x, k + 4 * RUN, K, EVEN, BY) if FORM == 1 else low1

    acc = tl.zeros((BN, COUNT // RUN if GROUPED else COUNT), dtype=tl.float32)
    acc_up = acc
    totals = tl.zeros((COUNT // RUN,), dtype=tl.float32)
    squares = tl.zeros((COUNT,), dtype=tl.float32)
    for turn in range(TURNS):
        if AHEAD == 1:
            words = words1
            up = up1 if SWIGLU else words1
        s, z, s_up, z_up = s1, z1, s_up1, z_up1
        low_asked, low_norm, high_asked, high_norm = low1, low_norm1, high1, high_norm1
        # What the next turn multiplies, under way meanwhile; the last turn asks for its own again.
        now, first = turn * BK, tl.minimum(turn + 1, TURNS - 1) * BK
        if AHEAD == 1:
            words1 = _weights(w, at, n_mask, first // PER, KW, COUNT, EVEN)
            if SWIGLU:
                up1 = _weights(w_up, at, n_mask, first // PER, KW, COUNT, EVEN)
        else:
            words = _weights(w, at, n_mask, now // PER, KW, COUNT, EVEN)
            up = _weights(w_up, at, n_mask, now // PER, KW, COUNT, EVEN) if SWIGLU else words
        if GROUPED:
            s1 = _grid(scale, n, n_mask, first + run, K, GROUP, ROWS)
            z1 = _grid(zero, n, n_mask, first + run, K, GROUP, ROWS) if ZERO > 0 else s1
            if SWIGLU:
                s_up1 = _grid(scale, n + N, n_mask, first + run, K, GROUP, ROWS)
                z_up1 = _grid(zero, n + N, n_mask, first + run, K, GROUP, ROWS) if ZERO > 0 else s_up1
        low1 = _asked(x, first + k, K, EVEN, BY)
        if WEIGHTED:
            low_norm1 = _asked(norm_weight, first + k, K, EVEN, BY)
        if FORM == 1:
            high1 = _asked(x, first + k + 4 * RUN, K, EVEN, BY)
            if WEIGHTED:
                high_norm1 = _asked(norm_weight, first + k + 4 * RUN, K, EVEN, BY)

        a = _unpacked(x, now + k, low_asked, K, BY)
        b = _unpacked(x, now + k + 4 * RUN, high_asked, K, BY) if FORM == 1 else a
        if NORM:
            squares += _sum(_times(a, a))
            if FORM == 1:
                squares += _sum(_times(b, b))
            if not FOLDED:
                a = _times(a, _unpacked(norm_weight, now + k, low_norm, K, BY))
                b = _times(b, _unpacked(norm_weight, now + k + 4 * RUN, high_norm, K, BY)) if FORM == 1 else a
        total = totals
        if FORM != 3:
            total = _runs(_sum(a) + _sum(b)) if FORM == 1 else _runs(_sum(a))
            totals += total
        acc = _add_products(acc, words, a, b, total, s, z, FORM, ZERO, GROUPED, BY)
        if SWIGLU:
            acc_up = _add_products(acc_up, up, a, b, total, s_up, z_up, FORM, ZERO, GROUPED, BY)

    y = whole(acc, totals, tl.sum(whole_s, axis=1), tl.sum(whole_z, axis=1), FORM, ZERO, GROUPED, BY)
    y_up = y
    if SWIGLU:
        y_up = whole(acc_up, totals, tl.sum(whole_s_up, axis=1), tl.sum(whole_z_up, axis=1), FORM, ZERO, GROUPED, BY)
    finish_row(y, y_up, squares, bi, bi_up, kept, out, n, n_mask, eps, K, NORM, SWIGLU, RESIDUAL, BIAS)
