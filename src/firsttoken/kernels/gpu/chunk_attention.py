"""Attention of prompt chunks over the paged cache, what was cached before them included.

A program owns a tile of up to BQ neighbouring query tokens of one sequence and one KV head: the group's query heads are
packed into its rows, so that each key and value is read once for all of them. Queries are rotated and all keys and
values of the step are in the cache before it runs. The tiles are listed by the host, so that one launch serves any mix
of sequences, and a CUDA graph any mix that fits its list. The softmax is online, as in FlashAttention-2 (Dao, 2023).
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from firsttoken.kernels.gpu.e4m3 import add_weighted, as_query, in_order, in_pairs, read_kv, unit


@triton.jit
def _attend(
    q,
    acc,
    odd,  # of pairs: see `e4m3.add_weighted`
    m_i,
    l_i,
    k_cache,
    v_cache,
    table,
    kv_head,
    start,
    stop,
    last,
    limit,  # [rows] first hidden position of each query row
    scale,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    BT: tl.constexpr,
    STAGES: tl.constexpr,
    KV_FORM: tl.constexpr,
    PAIRED: tl.constexpr,
    MASKED: tl.constexpr,
):
    PAIRS: tl.constexpr = 2 if PAIRED else 1  # dimensions that a loaded value holds
    d = tl.arange(0, HEAD_DIM)
    dv = tl.arange(0, HEAD_DIM // PAIRS)
    v_pairs = in_pairs(v_cache, PAIRED)
    for t0 in tl.range(start, stop, BT, num_stages=STAGES):
        t = t0 + tl.arange(0, BT)
        if MASKED:
            block = tl.load(table + t // BLOCK, mask=t < last, other=0).to(tl.int64)
        else:
            block = tl.load(table + t // BLOCK).to(tl.int64)
        at = ((block * KV_HEADS + kv_head) * BLOCK + t % BLOCK) * HEAD_DIM
        if MASKED:
            kt = tl.load(k_cache + at[None, :] + d[:, None], mask=(t < last)[None, :], other=0)  # [HEAD_DIM, BT]
            vt = tl.load(v_pairs + (at >> (PAIRS - 1))[:, None] + dv[None, :], mask=(t < last)[:, None], other=0)
        else:
            kt = tl.load(k_cache + at[None, :] + d[:, None])
            vt = tl.load(v_pairs + (at >> (PAIRS - 1))[:, None] + dv[None, :])  # [BT, dims]
        scores = tl.dot(q, read_kv(kt, KV_FORM)) * scale
        if MASKED:
            scores = tl.where(t[None, :] < limit[:, None], scores, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(scores, axis=1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc, odd = add_weighted(p, vt, acc * alpha[:, None], odd * alpha[:, None], KV_FORM, PAIRED)
        m_i = m_new
    return acc, odd, m_i, l_i


# Views of one buffer: compiled once, whatever their alignment, so that no later step waits for a compiler.
@triton.jit(
    do_not_specialize=["tile_count", "table_width"],
    do_not_specialize_on_alignment=["tiles", "contexts", "table_rows"],
)
def chunk_attention_kernel(
    qkv,  # [tokens, (heads + 2 kv_heads) * HEAD_DIM]
    k_cache,  # [blocks, KV_HEADS, BLOCK, HEAD_DIM]
    v_cache,
    kv_scales,  # [2, KV_HEADS] float32; of an FP8 cache
    tiles,  # [2, tile count] int32: a tile's first token, and how many it has (0: none)
    tile_count,
    contexts,  # [tokens] int32, the token itself included
    table_rows,  # [tokens] int32
    tables,  # [sequences, table_width] int32
    table_width,
    out,  # [tokens, heads * HEAD_DIM]
    scale,  # of the scores, times log2(e)
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,  # the power of two from GROUP up
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    BQ: tl.constexpr,  # query tokens a tile
    BT: tl.constexpr,  # keys a turn
    STAGES: tl.constexpr,
    KV_FORM: tl.constexpr,  # see `e4m3`
    PAIRED: tl.constexpr,  # whether values are read in pairs
    PDL: tl.constexpr,
):
    if PDL:
        gdc_launch_dependents()
    tile = tile_count - 1 - tl.program_id(0)  # a prompt's last tiles have the most to read: they start first
    kv_head = tl.program_id(1)
    HEADS: tl.constexpr = KV_HEADS * GROUP
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    first = tl.load(tiles + tile)
    count = tl.load(tiles + tile_count + tile)
    if PDL:
        gdc_wait()
    if count == 0:
        return
    context = tl.load(contexts + first)
    table = tables + tl.load(table_rows + first).to(tl.int64) * table_width
    last = context + count - 1  # context of the tile's last token

    row = tl.arange(0, BQ * GROUP_PAD)
    i, g = row // GROUP_PAD, row % GROUP_PAD
    real = (i < count) & (g < GROUP)
    d = tl.arange(0, HEAD_DIM)
    token = (first + i).to(tl.int64)
    head = kv_head * GROUP + g
    q = tl.load(qkv + token[:, None] * WIDTH + head[:, None] * HEAD_DIM + d[None, :], mask=real[:, None], other=0.0)
    q = as_query(q, k_cache, KV_FORM)
    v_unit = 1.0
    if KV_FORM:
        scale *= tl.load(kv_scales + kv_head) * unit(KV_FORM)
        v_unit = tl.load(kv_scales + KV_HEADS + kv_head) * unit(KV_FORM)
    m_i = tl.full((BQ * GROUP_PAD,), float("-inf"), dtype=tl.float32)
    l_i = tl.zeros((BQ * GROUP_PAD,), dtype=tl.float32)
    acc = tl.zeros((BQ * GROUP_PAD, HEAD_DIM // 2 if PAIRED else HEAD_DIM), dtype=tl.float32)
    odd = acc
    limit = context + i
    whole = context // BT * BT  # keys that every row of the tile sees
    acc, odd, m_i, l_i = _attend(
        q, acc, odd, m_i, l_i, k_cache, v_cache, table, kv_head, 0, whole, last, limit, scale,
        KV_HEADS, HEAD_DIM, BLOCK, BT, STAGES, KV_FORM, PAIRED, False,
    )  # fmt: skip
    acc, odd, m_i, l_i = _attend(
        q, acc, odd, m_i, l_i, k_cache, v_cache, table, kv_head, whole, last, last, limit, scale,
        KV_HEADS, HEAD_DIM, BLOCK, BT, STAGES, KV_FORM, PAIRED, True,
    )  # fmt: skip
    where = token[:, None] * (HEADS * HEAD_DIM) + head[:, None] * HEAD_DIM + d[None, :]
    acc = in_order(acc, odd, PAIRED)
    tl.store(out + where, acc * v_unit / l_i[:, None], mask=real[:, None])
