"""Attention of single query tokens over the paged cache, split over the context and merged in the same kernel.

A program owns one (part of a row's context, KV head): the query heads of the group share its keys and values. The
parts are listed on the device from the contexts (see `prepare`), about as many as fill the card, so that a CUDA graph
serves every length and one long context beside many short ones holds nobody up. Parts meet in float32 partial sums; the
last program to arrive merges them, as in flash-decoding (Dao et al., 2023), without a second kernel.

FUSED is the decode form: each row is a sequence of its own, and QK-norm, RoPE and the KV write happen here; what it
reads of the cache was written by earlier steps, so it is on its way to L2 before the kernel ahead ends. The program
of the last part makes the new key and value, writes them to the cache and folds them in from registers (reading them
back through the pipelined loop would race with the write). Otherwise rows may be neighbours in one sequence, and
`rope_cache` has rotated the queries and written every key and value before.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from firsttoken.kernels.gpu.e4m3 import add_weighted, as_query, encode, in_order, in_pairs, read_kv, unit
from firsttoken.kernels.gpu.prefetch import prefetch_l2


@triton.jit
def norm_rope(v, weight, cos, sin, eps, HEAD_DIM: tl.constexpr, NORM: tl.constexpr):
    """RMSNorm and a NeoX rotation: v [heads, HEAD_DIM] and weight [HEAD_DIM] float32, cos and sin [HEAD_DIM / 2]."""
    HALF: tl.constexpr = HEAD_DIM // 2
    if NORM:
        scale = tl.rsqrt(tl.sum(v * v, axis=1) / HEAD_DIM + eps)
        v = v * scale[:, None] * weight[None, :]
    pairs = tl.permute(tl.reshape(v, (v.shape[0], 2, HALF)), (0, 2, 1))  # [heads, HALF, 2]
    first, second = tl.split(pairs)
    turned = tl.join(first * cos[None, :] - second * sin[None, :], second * cos[None, :] + first * sin[None, :])
    return tl.reshape(tl.permute(turned, (0, 2, 1)), (v.shape[0], HEAD_DIM))


# Views of one buffer: compiled once, whatever their alignment, so that no later step waits for a compiler.
@triton.jit(
    do_not_specialize=["table_width", "part_count"],
    do_not_specialize_on_alignment=["rope_rows", "slots", "parts"],
)
def row_attention_kernel(
    qkv,  # [rows, (heads + 2 kv_heads) * HEAD_DIM]
    q_weight,  # [HEAD_DIM]
    k_weight,  # [HEAD_DIM]
    cos,  # [positions, HEAD_DIM / 2] float32
    sin,
    k_cache,  # [blocks, kv_heads, BLOCK, HEAD_DIM]
    v_cache,
    kv_scales,  # [2, kv_heads] float32; of an FP8 cache
    rope_rows,  # [rows] int64
    slots,  # [rows] int64, -1 for padding
    tables,  # [sequences, table_width] int32
    table_width,
    parts,  # [6, part_count] int32: row (-1: none), row of `tables`, first token, end, which of its parts, of how many
    part_count,
    partial,  # [part_count, kv_heads, GROUP_PAD, HEAD_DIM] float32
    partial_ml,  # [part_count, kv_heads, 2, GROUP_PAD] float32: running maximum and sum
    arrivals,  # [rows, kv_heads] int32, zero before and after
    out,  # [rows, heads * HEAD_DIM]
    scale,  # of the scores, times log2(e)
    eps,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,  # the power of two from GROUP up
    TILE_ROWS: tl.constexpr,  # at least 16: the matrix units' smallest tile
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    BT: tl.constexpr,  # tokens a tile
    STAGES: tl.constexpr,
    MERGE: tl.constexpr,  # parts merged at a time
    QK_NORM: tl.constexpr,
    FUSED: tl.constexpr,
    PDL: tl.constexpr,
    KV_FORM: tl.constexpr,  # see `e4m3`
    EARLY: tl.constexpr,  # of FUSED with PDL: 1 loads the first tile before the wait, 2 asks for it into L2
):
    if PDL:
        gdc_launch_dependents()
    part = tl.program_id(0)
    kv_head = tl.program_id(1)
    HALF: tl.constexpr = HEAD_DIM // 2
    HEADS: tl.constexpr = KV_HEADS * GROUP
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM

    # All of this was written before the step's first product began: it may be read before the wait.
    mine = parts + part
    row = tl.load(mine)
    if row < 0:
        if PDL:  # noqa: SIM102 - the compiler leaves out what stands behind a constant alone
            if part == 0:
                gdc_wait()  # there is no row at all, and the grid may not end before the kernel ahead has
        return  # without waiting: some program of the grid has a part, and it waits for all
    table = tables + tl.load(mine + part_count).to(tl.int64) * table_width
    start = tl.load(mine + 2 * part_count)
    stop = tl.load(mine + 3 * part_count)
    index = tl.load(mine + 4 * part_count)
    num_parts = tl.load(mine + 5 * part_count)
    PAIRED: tl.constexpr = KV_FORM > 0
    PAIRS: tl.constexpr = 2 if PAIRED else 1  # dimensions that a loaded value holds
    COLUMNS: tl.constexpr = HEAD_DIM // PAIRS
    d = tl.arange(0, HEAD_DIM)
    dv = tl.arange(0, COLUMNS)
    v_pairs = in_pairs(v_cache, PAIRED)
    g = tl.arange(0, TILE_ROWS)
    g_mask = g < GROUP
    if FUSED:
        half = tl.arange(0, HALF)
        rope_row = tl.load(rope_rows + row)
        c = tl.load(cos + rope_row * HALF + half)
        s = tl.load(sin + rope_row * HALF + half)
        slot = tl.load(slots + row)
        q_norm = tl.load(q_weight + d).to(tl.float32) if QK_NORM else 1.0
        k_norm = tl.load(k_weight + d).to(tl.float32) if QK_NORM else 1.0
    if KV_FORM:
        k_scale = tl.load(kv_scales + kv_head)
        v_scale = tl.load(kv_scales + KV_HEADS + kv_head)
    if EARLY:
        t = start + tl.arange(0, BT)
        block = tl.load(table + t.to(tl.uint32) // BLOCK, mask=t < stop, other=0).to(tl.int64)
        at = ((block * KV_HEADS + kv_head) * BLOCK + t.to(tl.uint32) % BLOCK) * HEAD_DIM
        if EARLY == 1:
            k0 = tl.load(k_cache + at[None, :] + d[:, None], mask=(t < stop)[None, :], other=0)
            v0 = tl.load(v_pairs + (at >> (PAIRS - 1))[:, None] + dv[None, :], mask=(t < stop)[:, None], other=0)
        else:
            LINE: tl.constexpr = min(HEAD_DIM, 64 if KV_FORM == 0 else 128)  # elements of a line of L2, or all of them
            lines = tl.arange(0, HEAD_DIM // LINE) * LINE
            prefetch_l2(k_cache + at[:, None] + lines[None, :])
            prefetch_l2(v_cache + at[:, None] + lines[None, :])
    if PDL:
        gdc_wait()

    base = qkv + row.to(tl.int64) * WIDTH
    q = tl.load(base + (kv_head * GROUP + g[:, None]) * HEAD_DIM + d[None, :], mask=g_mask[:, None], other=0.0)
    if FUSED:  # asked for together: each that came later would be waited for once more
        k_raw = tl.load(base + (HEADS + kv_head) * HEAD_DIM + d).to(tl.float32)
        v_raw = tl.load(base + (HEADS + KV_HEADS + kv_head) * HEAD_DIM + d)
        q = norm_rope(q.to(tl.float32), q_norm, c, s, eps, HEAD_DIM, QK_NORM)
    q16 = as_query(q, k_cache, KV_FORM)
    v_unit = 1.0
    if KV_FORM:
        scale *= k_scale * unit(KV_FORM)
        v_unit = v_scale * unit(KV_FORM)

    m_i = tl.full((TILE_ROWS,), float("-inf"), dtype=tl.float32)
    l_i = tl.zeros((TILE_ROWS,), dtype=tl.float32)
    acc = tl.zeros((TILE_ROWS, COLUMNS), dtype=tl.float32)
    odd = acc

    if EARLY == 1:
        scores = tl.dot(q16, read_kv(k0, KV_FORM)) * scale
        scores = tl.where((t < stop)[None, :], scores, float("-inf"))
        m_i = tl.max(scores, axis=1)
        p = tl.where((t < stop)[None, :], tl.exp2(scores - m_i[:, None]), 0.0)
        l_i = tl.sum(p, axis=1)
        acc, odd = add_weighted(p, v0, acc, odd, KV_FORM, PAIRED)
        start += BT
    for t0 in tl.range(start, stop, BT, num_stages=STAGES):
        t = t0 + tl.arange(0, BT)
        t_mask = t < stop
        block = tl.load(table + t.to(tl.uint32) // BLOCK, mask=t_mask, other=0).to(tl.int64)
        at = ((block * KV_HEADS + kv_head) * BLOCK + t.to(tl.uint32) % BLOCK) * HEAD_DIM
        kt = tl.load(k_cache + at[None, :] + d[:, None], mask=t_mask[None, :], other=0)  # [HEAD_DIM, BT]
        vt = tl.load(
            v_pairs + (at >> (PAIRS - 1))[:, None] + dv[None, :], mask=t_mask[:, None], other=0
        )  # [BT, COLUMNS]
        scores = tl.dot(q16, read_kv(kt, KV_FORM)) * scale
        scores = tl.where(t_mask[None, :], scores, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(scores, axis=1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc, odd = add_weighted(p, vt, acc * alpha[:, None], odd * alpha[:, None], KV_FORM, PAIRED)
        m_i = m_new
    acc = in_order(acc, odd, PAIRED)

    if FUSED and index == num_parts - 1:
        k_new = norm_rope(k_raw[None, :], k_norm, c, s, eps, HEAD_DIM, QK_NORM)  # [1, HEAD_DIM]
        k_kept = encode(k_new / k_scale) if KV_FORM else k_new.to(k_cache.dtype.element_ty)
        v_kept = encode(v_raw.to(tl.float32) / v_scale) if KV_FORM else v_raw.to(v_cache.dtype.element_ty)
        at_new = ((slot // BLOCK * KV_HEADS + kv_head) * BLOCK + slot % BLOCK) * HEAD_DIM
        tl.store(k_cache + at_new + d[None, :], k_kept)
        tl.store(v_cache + at_new + d, v_kept)
        k_new, v_new = read_kv(k_kept, KV_FORM), read_kv(v_kept, KV_FORM)  # as they will be read
        score = tl.sum(q16.to(tl.float32) * k_new.to(tl.float32), axis=1) * scale
        m_new = tl.maximum(m_i, score)
        alpha = tl.exp2(m_i - m_new)
        p_new = tl.exp2(score - m_new)
        l_i = l_i * alpha + p_new
        acc = acc * alpha[:, None] + p_new[:, None] * v_new.to(tl.float32)[None, :]
        m_i = m_new

    acc *= v_unit
    out_row = out + row.to(tl.int64) * HEADS * HEAD_DIM + kv_head * GROUP * HEAD_DIM
    if num_parts == 1:
        tl.store(out_row + g[:, None] * HEAD_DIM + d[None, :], acc / l_i[:, None], mask=g_mask[:, None])
        return

    cell = part.to(tl.int64) * KV_HEADS + kv_head
    tl.store(partial + (cell * GROUP_PAD + g[:, None]) * HEAD_DIM + d[None, :], acc, mask=g_mask[:, None])
    tl.store(partial_ml + 2 * cell * GROUP_PAD + g, m_i, mask=g_mask)
    tl.store(partial_ml + (2 * cell + 1) * GROUP_PAD + g, l_i, mask=g_mask)
    tl.debug_barrier()  # every thread's partial is written before one thread announces it
    arrived = arrivals + row * KV_HEADS + kv_head
    seen = tl.atomic_add(arrived, 1, sem="acq_rel")
    if seen == num_parts - 1:
        tl.store(arrived, 0)
        h = tl.arange(0, GROUP_PAD)
        h_mask = h < GROUP
        cell -= index * KV_HEADS  # the row's first part
        m_all = tl.full((GROUP_PAD,), -1e30, dtype=tl.float32)  # finite: below every maximum, and no NaN against itself
        l_all = tl.zeros((GROUP_PAD,), dtype=tl.float32)
        acc_all = tl.zeros((GROUP_PAD, HEAD_DIM), dtype=tl.float32)
        for first in tl.range(0, num_parts, MERGE):
            for j in tl.static_range(MERGE):  # loads that do not wait for each other
                there = cell + (first + j) * KV_HEADS
                mask = tl.where(first + j < num_parts, h, GROUP) < GROUP
                ml = partial_ml + 2 * there * GROUP_PAD + h
                theirs = partial + (there * GROUP_PAD + h[:, None]) * HEAD_DIM + d[None, :]
                m = tl.load(ml, mask=mask, other=-1e30, cache_modifier=".cg")
                part_l = tl.load(ml + GROUP_PAD, mask=mask, other=0.0, cache_modifier=".cg")
                part_acc = tl.load(theirs, mask=mask[:, None], other=0.0, cache_modifier=".cg")
                m_new = tl.maximum(m_all, m)
                kept, weight = tl.exp2(m_all - m_new), tl.exp2(m - m_new)
                l_all = l_all * kept + part_l * weight
                acc_all = acc_all * kept[:, None] + part_acc * weight[:, None]
                m_all = m_new
        tl.store(out_row + h[:, None] * HEAD_DIM + d[None, :], acc_all / l_all[:, None], mask=h_mask[:, None])
