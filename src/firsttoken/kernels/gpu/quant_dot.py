"""Products of some rows with a weight of 8 or 4 bits, on the matrix units: bound by the weight's bytes.

The same ops as `rows_dot`, which is for dense weights. Rows are padded to `BM` (8 and up) and each program multiplies
a [BN, BK] weight tile with a [BK, BM] activation tile. Bytes are put into place (`packed`) in one to two instructions
a weight, and meet all rows at once; one row alone is better served by `quant_fixed`.

Scales and zeros of groups meet the sums of their group, those of rows the result: sum((u - z) x) is sum(u x) less z
times the activations' sum. Where that takes more instructions than the weights (small groups, many rows), scales and
zeros of groups meet the weights in the tile instead, which then are rounded to the activations' type; a tile may have
several groups. The norm's scale is one number a row of activations, taken on the way. A weight of few rows is split
along K, as in `rows_dot`.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from firsttoken.kernels.gpu.finish_tile import finish_tile
from firsttoken.kernels.gpu.packed import HALF, added, inputs, ones, scaled, unit, values, values_a_byte
from firsttoken.kernels.gpu.prefetch import prefetch_rows
from firsttoken.kernels.gpu.split_k import add_parts, is_last, leave_part


@triton.jit
def grid_of(grid, rows, rows_mask, k, K: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr):
    """The scales or zeros [BN] of input k."""
    GROUPS: tl.constexpr = (K + GROUP - 1) // GROUP
    return tl.load(grid + rows // ROWS * GROUPS + k // GROUP, mask=rows_mask, other=0)


@triton.jit
def _groups_of(
    grid,
    rows,
    rows_mask,
    k,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    BK: tl.constexpr,
    SCALED: tl.constexpr,
):
    """The scales or zeros that BK inputs from k on need: [BN], or [BN, G] of all groups among them."""
    if not SCALED:
        return grid_of(grid, rows, rows_mask, k, K, GROUP, ROWS)
    else:
        GROUPS: tl.constexpr = (K + GROUP - 1) // GROUP
        G: tl.constexpr = BK // GROUP if BK > GROUP else 1
        at = rows[:, None] // ROWS * GROUPS + k // GROUP + tl.arange(0, G)[None, :]
        return tl.load(grid + at, mask=rows_mask[:, None], other=0)


@triton.jit
def _group(
    scale,
    zero,
    rows,
    rows_mask,
    k,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    BK: tl.constexpr,
    ZERO: tl.constexpr,
    SCALED: tl.constexpr,
):
    """Scales and zeros, as `_groups_of` has them; without zeros the scales twice."""
    s = _groups_of(scale, rows, rows_mask, k, K, GROUP, ROWS, BK, SCALED)
    return s, _groups_of(zero, rows, rows_mask, k, K, GROUP, ROWS, BK, SCALED) if ZERO > 0 else s


@triton.jit
def tile_of_turn(begin, turn, TURNS: tl.constexpr):
    """Which of a row's tiles is multiplied in a turn: programs begin at different ones.

    All read the same activations. In step with each other they would ask one slice of the L2 cache for them, hundreds
    at a time, and wait for it: on an H200 that took four times as long as the weights.
    """
    place = begin + turn
    return tl.where(place >= TURNS, place - TURNS, place)


@triton.jit
def _activations(x, norm_weight, k, m, m_mask, K: tl.constexpr, NORM: tl.constexpr):
    """Inputs k of rows m, times the norm's weight: [COUNT, BM]."""
    a = tl.load(x + m[None, :] * K + k[:, None], mask=m_mask[None, :], other=0.0)
    if NORM:
        a = (a.to(tl.float32) * tl.load(norm_weight + k).to(tl.float32)[:, None]).to(a.dtype)
    return a


@triton.jit
def _products(
    acc,  # [BN, BM]
    tile,
    low,  # activations [COUNT, BM]
    high,  # of 4 bits: those of the high halves
    FORM: tl.constexpr,
    ASM: tl.constexpr,
):
    """A tile's values times the activations, added up."""
    acc = tl.dot(values(tile, False, FORM, ASM, low.dtype), low, acc, input_precision="ieee")
    if FORM == 1:  # a sum of its own: each product of the matrix units waits for the one that it is added to
        none = tl.zeros_like(acc)
        acc += tl.dot(values(tile, True, FORM, ASM, low.dtype), high, none, input_precision="ieee")
    return acc


@triton.jit
def _scaled_products(
    acc,  # [BN, BM]
    tile,
    scale,  # [BN, G]
    zero,
    low,
    high,
    FORM: tl.constexpr,
    ZERO: tl.constexpr,
    ASM: tl.constexpr,
):
    """A tile's weights, rounded to the activations' type, times the activations, added up."""
    acc = tl.dot(scaled(tile, scale, zero, False, FORM, ZERO, ASM, low.dtype), low, acc, input_precision="ieee")
    if FORM == 1:
        none = tl.zeros_like(acc)
        weights = scaled(tile, scale, zero, True, FORM, ZERO, ASM, low.dtype)
        acc += tl.dot(weights, high, none, input_precision="ieee")
    return acc


@triton.jit
def _scaled(part, total, scale, zero, FORM: tl.constexpr, ZERO: tl.constexpr, ASM: tl.constexpr):
    """Products with a weight's values and the activations' sums, both [BN, BM] -> products with the weight."""
    s = scale.to(tl.float32)[:, None]
    if FORM == 3:
        c: tl.constexpr = unit(FORM, ASM)
        return part * c * (s * c)
    z = zero.to(tl.float32)[:, None]
    if ZERO == 1:
        return (part - total * (added(FORM, ZERO, ASM) + z)) * s
    part = (part - total * added(FORM, ZERO, ASM)) * s
    return part + total * z if ZERO == 2 else part


@triton.jit(do_not_specialize=["M"])
def quant_dot_kernel(
    x,  # [M, K]
    w,  # [N, K] bytes, [N, K / 2] of 4 bits; with SWIGLU 2 N rows: gate rows, then up rows
    scale,  # [rows of scales, groups]
    zero,  # likewise
    norm_weight,  # [K]
    bias,  # [N] or [2 N]
    residual,  # [M, N]
    out,  # [M, N]
    partial,  # [tiles, SPLITS, parts, BN, BM] float32: of the sums, of the up rows' and of the rows' squares
    arrivals,  # [tiles] int32, zero before and after
    eps,
    M,
    N: tl.constexpr,
    K: tl.constexpr,
    BM: tl.constexpr,
    RM: tl.constexpr,  # rows of a tile that may not be padding
    BN: tl.constexpr,
    BK: tl.constexpr,  # inputs: K / SPLITS is a multiple, and a group too
    STAGES: tl.constexpr,
    SPLITS: tl.constexpr,
    PREFETCH: tl.constexpr,  # bytes of each weight row asked for before the wait; 0 is none
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
    ASM: tl.constexpr,
    SCALED: tl.constexpr,  # groups' scales and zeros meet the weights, in the tile, instead of the sums
):
    if PDL:
        gdc_launch_dependents()
    PER: tl.constexpr = values_a_byte(FORM)
    KB: tl.constexpr = K // PER  # bytes of a row
    COUNT: tl.constexpr = BK // PER
    PART: tl.constexpr = KB // SPLITS
    GROUPED: tl.constexpr = GROUP < K
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    n_mask = n < N
    first_row = tl.program_id(2) * BM
    m = first_row + tl.arange(0, BM)
    m_mask = m < M
    at = n[:, None] * KB + tl.arange(0, COUNT)[None, :]
    TURNS: tl.constexpr = PART // COUNT
    part = 0 if SPLITS == 1 else tl.program_id(1) * PART
    begin = tl.program_id(0) % TURNS
    first = part + begin * COUNT
    # Scales are asked for a turn ahead: they only meet a product's result, so nothing else would hide their way.
    s1, z1 = _group(scale, zero, n, n_mask, first * PER, K, GROUP, ROWS, BK, ZERO, SCALED)
    s_up1, z_up1 = s1, z1
    if SWIGLU:
        s_up1, z_up1 = _group(scale, zero, n + N, n_mask, first * PER, K, GROUP, ROWS, BK, ZERO, SCALED)
    if PDL:
        if PREFETCH > 0:  # the first weights travel to L2 while the kernel before this one ends
            prefetch_rows(w, n, tl.minimum(first, part + PART - PREFETCH), KB, PREFETCH)
            if SWIGLU:
                prefetch_rows(w, n + N, tl.minimum(first, part + PART - PREFETCH), KB, PREFETCH)
        gdc_wait()
    r = first_row + tl.arange(0, RM)
    r_at, r_mask = r[:, None] * K + tl.arange(0, BK)[None, :], (r < M)[:, None]
    squares = tl.zeros((RM, BK), dtype=tl.float32)
    plain = tl.load(x + r_at + first * PER, mask=r_mask, other=0.0) if NORM else squares
    acc = tl.zeros((BN, BM), dtype=tl.float32)
    acc_up, total, none = acc, acc, acc
    for turn in tl.range(0, TURNS, num_stages=STAGES):
        s, z, s_up, z_up = s1, z1, s_up1, z_up1
        k0 = part + tile_of_turn(begin, turn, TURNS) * COUNT
        after = (part + tile_of_turn(begin, turn + 1, TURNS) * COUNT) * PER
        if GROUPED:
            s1, z1 = _group(scale, zero, n, n_mask, after, K, GROUP, ROWS, BK, ZERO, SCALED)
            if SWIGLU:
                s_up1, z_up1 = _group(scale, zero, n + N, n_mask, after, K, GROUP, ROWS, BK, ZERO, SCALED)
        if NORM:
            wide = plain.to(tl.float32)
            squares += wide * wide
            plain = tl.load(x + r_at + after, mask=r_mask, other=0.0)
        tile = tl.load(w + at + k0, mask=n_mask[:, None], other=0, eviction_policy="evict_first")
        k = inputs(k0, COUNT, FORM)
        low = _activations(x, norm_weight, k, m, m_mask, K, NORM and not FOLDED)
        high = _activations(x, norm_weight, k + HALF, m, m_mask, K, NORM and not FOLDED) if FORM == 1 else low
        if FORM != 3 and not SCALED:
            # The activations' sums, by the matrix units too: in the products' layout, for each output row
            total = tl.dot(ones(tile, ASM, low.dtype), low, none if GROUPED else total, input_precision="ieee")
            if FORM == 1:
                total = tl.dot(ones(tile, ASM, low.dtype), high, total, input_precision="ieee")
        if SCALED:
            acc = _scaled_products(acc, tile, s, z, low, high, FORM, ZERO, ASM)
        elif GROUPED:
            acc += _scaled(_products(none, tile, low, high, FORM, ASM), total, s, z, FORM, ZERO, ASM)
        else:
            acc = _products(acc, tile, low, high, FORM, ASM)
        if SWIGLU:
            up = tl.load(w + N * KB + at + k0, mask=n_mask[:, None], other=0, eviction_policy="evict_first")
            if SCALED:
                acc_up = _scaled_products(acc_up, up, s_up, z_up, low, high, FORM, ZERO, ASM)
            elif GROUPED:
                acc_up += _scaled(_products(none, up, low, high, FORM, ASM), total, s_up, z_up, FORM, ZERO, ASM)
            else:
                acc_up = _products(acc_up, up, low, high, FORM, ASM)
    if not GROUPED:
        acc = _scaled(acc, total, s1, z1, FORM, ZERO, ASM)
        if SWIGLU:
            acc_up = _scaled(acc_up, total, s_up1, z_up1, FORM, ZERO, ASM)
    squared = tl.zeros((BM,), dtype=tl.float32)
    if NORM:
        by_row = tl.sum(squares, axis=1)
        if RM == BM:
            squared = by_row
        else:  # the padding's rows are never stored
            same = tl.arange(0, RM)[:, None] == tl.arange(0, BM)[None, :]
            squared = tl.sum(tl.where(same, by_row[:, None], 0.0), axis=0)
    if SPLITS > 1:
        place = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
        PARTS: tl.constexpr = 1 + SWIGLU + NORM
        mine = partial + place * (SPLITS * PARTS * BN * BM)
        if SWIGLU:
            leave_part(acc_up, mine, tl.program_id(1) * PARTS + 1)
        if NORM:
            leave_part(tl.broadcast_to(squared[None, :], (BN, BM)), mine, tl.program_id(1) * PARTS + 1 + SWIGLU)
        leave_part(acc, mine, tl.program_id(1) * PARTS)
        if not is_last(arrivals + place, SPLITS):
            return
        acc = add_parts(acc, mine, 0, PARTS, SPLITS)
        if SWIGLU:
            acc_up = add_parts(acc, mine, 1, PARTS, SPLITS)
        if NORM:
            squared = tl.sum(add_parts(acc, mine, 1 + SWIGLU, PARTS, SPLITS), axis=0) / BN
    if NORM:
        inverse = tl.rsqrt(squared / K + eps)
        acc = acc * inverse[None, :]
        acc_up = acc_up * inverse[None, :]
    finish_tile(acc, acc_up, bias, residual, out, n, n_mask, m, m_mask, N, SWIGLU, RESIDUAL, BIAS)
