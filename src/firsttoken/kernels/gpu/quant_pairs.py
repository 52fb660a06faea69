"""Products of some rows with an FP8 or 4-bit weight as it lies in memory, on the matrix units' own FP8 product.

The same ops as `quant_dot`, for cards that multiply FP8. There each weight is made a bf16 number first, which is what
a step of some rows spends its time on. Here the activations come to the weights: `pair_rows_kernel` has written each
as two E4M3 numbers, its leading four bits and the next four, sixteen times. That is a bf16 number exactly, so no
row is rounded; the matrix units' time doubles, but it was a small part. A weight of 4 bits is an E4M3 number already:
a byte of value u below 16 stands for u / 512.

Hopper's matrix units keep about 14 bits of an FP8 product's sums (DeepSeek-V3, 2024, section 3.3.2), so the sums of
each tile are added in float32. Scales of groups meet the sums of their group, those of rows the result.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from firsttoken.kernels.gpu.finish_tile import finish_tile
from firsttoken.kernels.gpu.packed import HALF, inputs, values_a_byte
from firsttoken.kernels.gpu.pair_rows import LEFT
from firsttoken.kernels.gpu.prefetch import prefetch_rows
from firsttoken.kernels.gpu.quant_dot import grid_of, tile_of_turn
from firsttoken.kernels.gpu.split_k import add_parts, is_last, leave_part

_LOW: tl.constexpr = tl.constexpr("and.b32 $0, $1, 0x0f0f0f0f;")
_HIGH: tl.constexpr = tl.constexpr("{ .reg .b32 t; shr.u32 t, $1, 4; and.b32 $0, t, 0x0f0f0f0f; }")


@triton.jit
def _halves(tile, HIGH: tl.constexpr, ASM: tl.constexpr):
    """The low or high halves of bytes as E4M3 numbers, 512 times too small."""
    if ASM:  # four bytes at a time, where the compiler would take each alone
        code: tl.constexpr = _HIGH if HIGH else _LOW
        bits = tl.inline_asm_elementwise(code, "=r,r", [tile], dtype=tl.uint8, is_pure=True, pack=4)
    else:
        bits = (tile >> 4) if HIGH else (tile & 15)
    return bits.to(tl.float8e4nv, bitcast=True)


@triton.jit
def _product(tile, low, high, FORM: tl.constexpr, ASM: tl.constexpr):
    """A weight tile times the pairs: [BN, 2 BM]."""
    none = tl.zeros((tile.shape[0], low.shape[1]), dtype=tl.float32)
    if FORM == 3:
        return tl.dot(tile, low, none)
    else:
        part = tl.dot(_halves(tile, False, ASM), low, none)
        return tl.dot(_halves(tile, True, ASM), high, part)


@triton.jit
def _weights(w, at, k0, n_mask, EVEN: tl.constexpr):
    """A tile of the weight, zeros past its last row. EVEN: it has no rows past it, and the loads no mask."""
    if EVEN:
        return tl.load(w + at + k0, eviction_policy="evict_first")
    else:
        return tl.load(w + at + k0, mask=n_mask[:, None], other=0.0, eviction_policy="evict_first")


@triton.jit
def _of_group(grid, first, n, n_mask, k, K: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, ONE: tl.constexpr):
    """Scales or zeros of input k's group for the tile's rows n, which begin at `first`: [BN, 1]; one where ONE."""
    if ONE:
        return tl.load(grid + first // ROWS * ((K + GROUP - 1) // GROUP) + k // GROUP).to(tl.float32)
    else:
        return grid_of(grid, n, n_mask, k, K, GROUP, ROWS).to(tl.float32)[:, None]


@triton.jit
def _group(
    scale,
    zero,
    first,
    n,
    n_mask,
    k,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    ZERO: tl.constexpr,
    ONE: tl.constexpr,
):
    """Scales and zeros of the group of input k, as `_of_group` has them; without zeros the scales twice."""
    s = _of_group(scale, first, n, n_mask, k, K, GROUP, ROWS, ONE)
    return s, _of_group(zero, first, n, n_mask, k, K, GROUP, ROWS, ONE) if ZERO > 0 else s


@triton.jit
def _scaled(part, total, scale, zero, FORM: tl.constexpr, ZERO: tl.constexpr):
    """Products of a group with values -> products with the weight: [BN, 2 BM]."""
    if FORM == 1:
        part = part * 512.0 - total * (8.0 if ZERO == 0 else zero)
    return part * scale


@triton.jit
def _whole(acc, BN: tl.constexpr, BM: tl.constexpr):
    """Sums with pairs -> sums with the activations: [BN, BM]."""
    first, left = tl.split(tl.reshape(acc, (BN, BM, 2)))
    return first + left * (1.0 / LEFT)


@triton.jit(do_not_specialize=["M"])
def quant_pairs_kernel(
    pairs,  # [M, 2, K] E4M3, of BM rows a program
    powers,  # [M] float32
    sums,  # [M, K / BK] float32: of the activations of a tile, in units of `powers`; of 4 bits
    w,  # [N, K] E4M3, or [N, K / 2] bytes of 4 bits; with SWIGLU 2 N rows: gate rows, then up rows
    scale,  # [rows of scales, groups]
    zero,  # likewise
    bias,  # [N] or [2 N]
    residual,  # [M, N]
    out,  # [M, N]
    partial,  # [tiles, SPLITS, 1 or 2, BN, BM] float32
    arrivals,  # [tiles] int32, zero before and after
    M,
    N: tl.constexpr,
    K: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,  # inputs: K / SPLITS is a multiple, and a group too
    STAGES: tl.constexpr,
    SPLITS: tl.constexpr,
    PREFETCH: tl.constexpr,  # bytes of each weight row asked for before the wait; 0 is none
    SWIGLU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    BIAS: tl.constexpr,
    PDL: tl.constexpr,
    FORM: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    ZERO: tl.constexpr,
    ASM: tl.constexpr,
):
    if PDL:
        gdc_launch_dependents()
    PER: tl.constexpr = values_a_byte(FORM)
    KB: tl.constexpr = K // PER  # bytes of a row
    COUNT: tl.constexpr = BK // PER
    PART: tl.constexpr = KB // SPLITS
    TURNS: tl.constexpr = PART // COUNT
    GROUPED: tl.constexpr = GROUP < K
    EVEN: tl.constexpr = N % BN == 0
    ONE: tl.constexpr = ROWS % BN == 0 and N % ROWS == 0  # scale for a tile's rows: no layouts to change, and one load
    first = tl.program_id(0) * BN
    n = first + tl.arange(0, BN)
    n_mask = n < N
    first_row = tl.program_id(2) * BM
    m = first_row + tl.arange(0, BM)
    m_mask = m < M
    at = n[:, None] * KB + tl.arange(0, COUNT)[None, :]
    p = first_row * 2 + tl.arange(0, 2 * BM)  # numbers of the rows' pairs
    part = 0 if SPLITS == 1 else tl.program_id(1) * PART
    begin = tl.program_id(0) % TURNS
    whole_s = grid_of(scale, n, n_mask, 0, K, GROUP, ROWS).to(tl.float32)
    whole_s_up = grid_of(scale, n + N, n_mask, 0, K, GROUP, ROWS).to(tl.float32) if SWIGLU else whole_s
    if PDL:
        if PREFETCH > 0:  # the first weights travel to L2 while the kernel before this one ends
            prefetch_rows(w, n, tl.minimum(part + begin * COUNT, part + PART - PREFETCH), KB, PREFETCH)
            if SWIGLU:
                prefetch_rows(w, n + N, tl.minimum(part + begin * COUNT, part + PART - PREFETCH), KB, PREFETCH)
        gdc_wait()
    by = tl.load(powers + m, mask=m_mask, other=0.0)[None, :]
    acc = tl.zeros((BN, 2 * BM), dtype=tl.float32)
    acc_up = acc
    # Scales are asked for a turn ahead: they only meet a product's result, so nothing else would hide their way.
    k1 = (part + begin * COUNT) * PER
    s1, z1, s_up1, z_up1 = by, by, by, by
    if GROUPED:
        s1, z1 = _group(scale, zero, first, n, n_mask, k1, K, GROUP, ROWS, ZERO, ONE)
        if SWIGLU:
            s_up1, z_up1 = _group(scale, zero, first + N, n + N, n_mask, k1, K, GROUP, ROWS, ZERO, ONE)
    for turn in tl.range(0, TURNS, num_stages=STAGES):
        s, z, s_up, z_up = s1, z1, s_up1, z_up1
        k0 = part + tile_of_turn(begin, turn, TURNS) * COUNT
        k = inputs(k0, COUNT, FORM)
        low = tl.load(pairs + p[None, :] * K + k[:, None])
        high = tl.load(pairs + p[None, :] * K + (k + HALF)[:, None]) if FORM == 1 else low
        tile = _weights(w, at, k0, n_mask, EVEN)
        up = _weights(w + N * KB, at, k0, n_mask, EVEN) if SWIGLU else tile
        total = 0.0
        if FORM == 1:
            total = tl.load(sums + p // 2 * (K // BK) + k0 * PER // BK, mask=p % 2 == 0, other=0.0)[None, :]
        if GROUPED:
            k1 = (part + tile_of_turn(begin, turn + 1, TURNS) * COUNT) * PER
            s1, z1 = _group(scale, zero, first, n, n_mask, k1, K, GROUP, ROWS, ZERO, ONE)
            if SWIGLU:
                s_up1, z_up1 = _group(scale, zero, first + N, n + N, n_mask, k1, K, GROUP, ROWS, ZERO, ONE)
        some = _product(tile, low, high, FORM, ASM)
        acc += _scaled(some, total, s, z, FORM, ZERO) if GROUPED else some
        if SWIGLU:
            some = _product(up, low, high, FORM, ASM)
            acc_up += _scaled(some, total, s_up, z_up, FORM, ZERO) if GROUPED else some
    acc = _whole(acc, BN, BM)
    acc_up = _whole(acc_up, BN, BM) if SWIGLU else acc
    if SPLITS > 1:
        place = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
        PARTS: tl.constexpr = 1 + SWIGLU
        mine = partial + place * (SPLITS * PARTS * BN * BM)
        if SWIGLU:
            leave_part(acc_up, mine, tl.program_id(1) * PARTS + 1)
        leave_part(acc, mine, tl.program_id(1) * PARTS)
        if not is_last(arrivals + place, SPLITS):
            return
        acc = add_parts(acc, mine, 0, PARTS, SPLITS)
        if SWIGLU:
            acc_up = add_parts(acc, mine, 1, PARTS, SPLITS)
    acc *= by
    acc_up *= by
    if not GROUPED:
        acc *= whole_s[:, None]
        acc_up *= whole_s_up[:, None]
    finish_tile(acc, acc_up, bias, residual, out, n, n_mask, m, m_mask, N, SWIGLU, RESIDUAL, BIAS)
