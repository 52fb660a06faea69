"""Attention of single query tokens over the paged cache, split over the context and merged in the same kernel.

A program owns one (row, KV head, split of the context): the query heads of the group share its keys and values. How
many splits a row gets is decided on the device from its context, so that a CUDA graph serves every length. Splits meet
in float32 partial sums; the last program to arrive merges them, as in flash-decoding (Dao et al., 2023), without a
second kernel.

FUSED is the decode form: each row is a sequence of its own, and QK-norm, RoPE and the KV write happen here. The program
of the last split makes the new key and value, writes them to the cache and folds them in from registers (reading them
back through the pipelined loop would race with the write). Otherwise rows may be neighbours in one sequence, and
`rope_cache` has rotated the queries and written every key and value before.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def norm_rope(v, weight, cos, sin, eps, HEAD_DIM: tl.constexpr, NORM: tl.constexpr):
    """RMSNorm and a NeoX rotation: v [heads, HEAD_DIM] float32, weight [HEAD_DIM], cos and sin [HEAD_DIM / 2]."""
    HALF: tl.constexpr = HEAD_DIM // 2
    if NORM:
        scale = tl.rsqrt(tl.sum(v * v, axis=1) / HEAD_DIM + eps)
        v = v * scale[:, None] * tl.load(weight + tl.arange(0, HEAD_DIM)).to(tl.float32)[None, :]
    pairs = tl.permute(tl.reshape(v, (v.shape[0], 2, HALF)), (0, 2, 1))  # [heads, HALF, 2]
    first, second = tl.split(pairs)
    turned = tl.join(first * cos[None, :] - second * sin[None, :], second * cos[None, :] + first * sin[None, :])
    return tl.reshape(tl.permute(turned, (0, 2, 1)), (v.shape[0], HEAD_DIM))


# Views of one buffer: compiled once, whatever their alignment, so that no later step waits for a compiler.
@triton.jit(do_not_specialize_on_alignment=["rope_rows", "slots", "contexts", "table_rows"])
def row_attention_kernel(
    qkv,  # [rows, (heads + 2 kv_heads) * HEAD_DIM]
    q_weight,  # [HEAD_DIM]
    k_weight,  # [HEAD_DIM]
    cos,  # [positions, HEAD_DIM / 2] float32
    sin,
    k_cache,  # [blocks, kv_heads, BLOCK, HEAD_DIM]
    v_cache,
    rope_rows,  # [rows] int64
    slots,  # [rows] int64, -1 for padding
    contexts,  # [rows] int32, the row's own token included; 0 for padding
    table_rows,  # [rows] int32: which row of `tables` is its sequence's
    tables,  # [sequences, table_width] int32
    table_width,
    split_tokens,  # [1] int32: the shortest split worth a program
    partial,  # [rows, kv_heads, SPLITS, GROUP_PAD, HEAD_DIM] float32
    partial_ml,  # [rows, kv_heads, SPLITS, 2, GROUP_PAD] float32: running maximum and sum
    arrivals,  # [rows, kv_heads] int32, zero before and after
    out,  # [rows, heads * HEAD_DIM]
    scale,  # of the scores, times log2(e)
    eps,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,  # at least 16: the matrix units' smallest tile
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    BT: tl.constexpr,  # tokens a tile
    SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
    QK_NORM: tl.constexpr,
    FUSED: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        gdc_launch_dependents()
    split = tl.program_id(0)
    kv_head = tl.program_id(1)
    row = tl.program_id(2)
    HALF: tl.constexpr = HEAD_DIM // 2
    HEADS: tl.constexpr = KV_HEADS * GROUP
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM

    # Lengths and tables were written before the step's first kernel began: they may be read before the wait.
    context = tl.load(contexts + row)
    table = tables + tl.load(table_rows + row).to(tl.int64) * table_width
    old = context - 1 if FUSED else context  # tokens that are in the cache already
    per_split = tl.maximum(tl.cdiv(old, SPLITS), tl.load(split_tokens))
    per_split = tl.cdiv(per_split, BT) * BT
    splits = tl.maximum(tl.cdiv(old, per_split), 1)
    d = tl.arange(0, HEAD_DIM)
    g = tl.arange(0, GROUP_PAD)
    g_mask = g < GROUP
    if FUSED:
        half = tl.arange(0, HALF)
        rope_row = tl.load(rope_rows + row)
        c = tl.load(cos + rope_row * HALF + half)
        s = tl.load(sin + rope_row * HALF + half)
    if PDL:
        gdc_wait()
    if (context == 0) | (split >= splits):
        return

    base = qkv + row.to(tl.int64) * WIDTH
    q = tl.load(base + (kv_head * GROUP + g[:, None]) * HEAD_DIM + d[None, :], mask=g_mask[:, None], other=0.0)
    if FUSED:
        q = norm_rope(q.to(tl.float32), q_weight, c, s, eps, HEAD_DIM, QK_NORM)
    q16 = q.to(k_cache.dtype.element_ty)

    m_i = tl.full((GROUP_PAD,), float("-inf"), dtype=tl.float32)
    l_i = tl.zeros((GROUP_PAD,), dtype=tl.float32)
    acc = tl.zeros((GROUP_PAD, HEAD_DIM), dtype=tl.float32)

    start = split * per_split
    stop = tl.minimum(start + per_split, old)
    for t0 in tl.range(start, stop, BT, num_stages=STAGES):
        t = t0 + tl.arange(0, BT)
        t_mask = t < stop
        block = tl.load(table + t // BLOCK, mask=t_mask, other=0).to(tl.int64)
        at = ((block * KV_HEADS + kv_head) * BLOCK + t % BLOCK) * HEAD_DIM
        kt = tl.load(k_cache + at[None, :] + d[:, None], mask=t_mask[None, :], other=0.0)  # [HEAD_DIM, BT]
        vt = tl.load(v_cache + at[:, None] + d[None, :], mask=t_mask[:, None], other=0.0)  # [BT, HEAD_DIM]
        scores = tl.dot(q16, kt) * scale
        scores = tl.where(t_mask[None, :], scores, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(scores, axis=1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(vt.dtype), vt, acc)
        m_i = m_new

    if FUSED and split == splits - 1:
        k_raw = tl.load(base + (HEADS + kv_head) * HEAD_DIM + d).to(tl.float32)
        k_new = norm_rope(k_raw[None, :], k_weight, c, s, eps, HEAD_DIM, QK_NORM)  # [1, HEAD_DIM]
        k_new = k_new.to(k_cache.dtype.element_ty)
        v_new = tl.load(base + (HEADS + KV_HEADS + kv_head) * HEAD_DIM + d)
        slot = tl.load(slots + row)
        at_new = ((slot // BLOCK * KV_HEADS + kv_head) * BLOCK + slot % BLOCK) * HEAD_DIM
        tl.store(k_cache + at_new + d[None, :], k_new)
        tl.store(v_cache + at_new + d, v_new.to(v_cache.dtype.element_ty))
        score = tl.sum(q16.to(tl.float32) * k_new.to(tl.float32), axis=1) * scale
        m_new = tl.maximum(m_i, score)
        alpha = tl.exp2(m_i - m_new)
        p_new = tl.exp2(score - m_new)
        l_i = l_i * alpha + p_new
        acc = acc * alpha[:, None] + p_new[:, None] * v_new.to(tl.float32)[None, :]
        m_i = m_new

    out_at = row.to(tl.int64) * HEADS * HEAD_DIM + (kv_head * GROUP + g[:, None]) * HEAD_DIM + d[None, :]
    if splits == 1:
        tl.store(out + out_at, acc / l_i[:, None], mask=g_mask[:, None])
        return

    cell = (row * KV_HEADS + kv_head).to(tl.int64)
    mine = cell * SPLITS + split
    tl.store(partial + mine * GROUP_PAD * HEAD_DIM + g[:, None] * HEAD_DIM + d[None, :], acc, mask=g_mask[:, None])
    tl.store(partial_ml + mine * 2 * GROUP_PAD + g, m_i)
    tl.store(partial_ml + mine * 2 * GROUP_PAD + GROUP_PAD + g, l_i)
    tl.debug_barrier()  # every thread's partial is written before one thread announces it
    seen = tl.atomic_add(arrivals + cell, 1, sem="acq_rel")
    if seen == splits - 1:
        tl.store(arrivals + cell, 0)
        m_all = tl.full((GROUP_PAD,), float("-inf"), dtype=tl.float32)
        l_all = tl.zeros((GROUP_PAD,), dtype=tl.float32)
        acc_all = tl.zeros((GROUP_PAD, HEAD_DIM), dtype=tl.float32)
        for i in tl.range(0, splits):
            theirs = cell * SPLITS + i
            m_s = tl.load(partial_ml + theirs * 2 * GROUP_PAD + g, cache_modifier=".cg")
            l_s = tl.load(partial_ml + theirs * 2 * GROUP_PAD + GROUP_PAD + g, cache_modifier=".cg")
            acc_s = tl.load(
                partial + theirs * GROUP_PAD * HEAD_DIM + g[:, None] * HEAD_DIM + d[None, :],
                mask=g_mask[:, None],
                other=0.0,
                cache_modifier=".cg",
            )
            m_new = tl.maximum(m_all, m_s)
            a_old = tl.exp2(m_all - m_new)
            a_s = tl.exp2(m_s - m_new)
            l_all = l_all * a_old + l_s * a_s
            acc_all = acc_all * a_old[:, None] + acc_s * a_s[:, None]
            m_all = m_new
        tl.store(out + out_at, acc_all / l_all[:, None], mask=g_mask[:, None])
