"""Attention on a GPU: single tokens split over their context, chunks in tiles, long fresh prompts by the library."""

from __future__ import annotations

import math

import torch.nn.functional as F
import triton
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from firsttoken.kernels.gpu.call import dependent, overlap, run_kernel
from firsttoken.kernels.gpu.card_facts import facts_of
from firsttoken.kernels.gpu.chunk_attention import chunk_attention_kernel
from firsttoken.kernels.gpu.e4m3 import BY_BITS, BY_CODE, NATIVE, PLAIN, KvForm
from firsttoken.kernels.gpu.launch import row_tile
from firsttoken.kernels.gpu.rope_cache import rope_cache_kernel
from firsttoken.kernels.gpu.row_attention import row_attention_kernel
from firsttoken.kernels.linear import Norm
from firsttoken.kernels.plan import AttentionPlan, ChunkTiles, KVLayer, Rope, TokenRows

_LOG2E = 1.0 / math.log(2.0)
_TILE = 64  # tokens of the cache a tile
_TILE_ROWS = 16  # the matrix units' smallest tile


def attention(
    qkv: Tensor, q_norm: Norm | None, k_norm: Norm | None, rope: Rope, kv: KVLayer, plan: AttentionPlan
) -> Tensor:
    """As `kernels.attention`. The plan's `rows` are the leading tokens, which run singly; `chunks` are the others."""
    tokens = len(qkv)
    out = qkv.new_empty(tokens, plan.num_heads * kv.head_dim)
    rows = plan.rows
    single = 0 if rows is None else rows.count
    chunks = plan.chunks
    if rows is not None and single:
        if not rows.fused:
            _rope_cache(qkv[:single], q_norm, k_norm, rope, kv, plan, 0)
        _single(qkv, q_norm, k_norm, rope, kv, plan, rows, out)
    if chunks is not None:
        _rope_cache(qkv[single:], q_norm, k_norm, rope, kv, plan, single)
        _chunks(qkv, kv, plan, chunks, out)
    return out


def _single(
    qkv: Tensor,
    q_norm: Norm | None,
    k_norm: Norm | None,
    rope: Rope,
    kv: KVLayer,
    plan: AttentionPlan,
    rows: TokenRows,
    out: Tensor,
) -> None:
    pdl = dependent(qkv)
    parts = rows.parts.shape[1]
    tile = row_tile(qkv.device, kv.head_dim, rows.count, fp8_cache=kv.scales is not None)
    group = plan.num_heads // kv.num_kv_heads
    padded = triton.next_power_of_2(group)
    run_kernel(
        row_attention_kernel,
        (parts, kv.num_kv_heads),
        qkv,
        _weight(q_norm, rope),
        _weight(k_norm, rope),
        rope.cos,
        rope.sin,
        kv.k,
        kv.v,
        _scales(kv),
        plan.rope_rows,
        plan.slots,
        rows.tables,
        rows.tables.stride(0),
        rows.parts,
        parts,
        rows.partial,
        rows.partial_ml,
        rows.arrivals,
        out,
        plan.scale * _LOG2E,
        _eps(q_norm),
        KV_HEADS=kv.num_kv_heads,
        GROUP=group,
        GROUP_PAD=padded,
        TILE_ROWS=max(_TILE_ROWS, padded),
        HEAD_DIM=kv.head_dim,
        BLOCK=kv.block_size,
        BT=tile.tokens,
        STAGES=tile.stages,
        MERGE=tile.merge,
        QK_NORM=q_norm is not None,
        KV_FORM=kv_form(kv),
        FUSED=rows.fused,
        PDL=pdl,
        EARLY=tile.early if rows.fused and pdl else 0,
        num_warps=4,
        **overlap(pdl),
    )


def _rope_cache(
    qkv: Tensor, q_norm: Norm | None, k_norm: Norm | None, rope: Rope, kv: KVLayer, plan: AttentionPlan, first: int
) -> None:
    pdl = dependent(qkv)
    run_kernel(
        rope_cache_kernel,
        (len(qkv),),
        qkv,
        _weight(q_norm, rope),
        _weight(k_norm, rope),
        rope.cos,
        rope.sin,
        kv.k,
        kv.v,
        _scales(kv),
        plan.rope_rows[first:],
        plan.slots[first:],
        _eps(q_norm),
        HEADS=plan.num_heads,
        HEADS_PAD=triton.next_power_of_2(plan.num_heads),
        KV_HEADS=kv.num_kv_heads,
        KV_PAD=triton.next_power_of_2(kv.num_kv_heads),
        HEAD_DIM=kv.head_dim,
        BLOCK=kv.block_size,
        QK_NORM=q_norm is not None,
        KV_FORM=kv_form(kv),
        PDL=pdl,
        num_warps=4,
        **overlap(pdl),
    )


def _chunks(qkv: Tensor, kv: KVLayer, plan: AttentionPlan, chunks: ChunkTiles, out: Tensor) -> None:
    """Rotated rows of prompts, their keys and values already in the cache."""
    if chunks.library is not None:
        fresh_prompt(qkv, kv, plan.num_heads, plan.scale, chunks.library, out)
    tiles = chunks.tiles.shape[1]
    if not tiles:
        return
    pdl = dependent(qkv)
    group = plan.num_heads // kv.num_kv_heads
    run_kernel(
        chunk_attention_kernel,
        (tiles, kv.num_kv_heads),
        qkv,
        kv.k,
        kv.v,
        _scales(kv),
        chunks.tiles,
        tiles,
        chunks.contexts,
        chunks.table_rows,
        chunks.tables,
        chunks.tables.stride(0),
        out,
        plan.scale * _LOG2E,
        KV_HEADS=kv.num_kv_heads,
        GROUP=group,
        GROUP_PAD=triton.next_power_of_2(group),
        HEAD_DIM=kv.head_dim,
        BLOCK=kv.block_size,
        BQ=chunks.tile,
        BT=_TILE,
        STAGES=3,
        KV_FORM=kv_form(kv),
        PAIRED=kv.scales is not None and not pdl,  # such cards multiply from shared memory, where bytes are no matter
        PDL=pdl,
        num_warps=4,
        **overlap(pdl),
    )


def fresh_prompt(qkv: Tensor, kv: KVLayer, heads: int, scale: float, span: tuple[int, int], out: Tensor) -> None:
    """The beginning of one prompt, from its first token on, through cuDNN: tokens `span` of qkv, rotated, to out."""
    start, end = span
    kv_heads = kv.num_kv_heads
    rows = qkv[start:end].view(1, end - start, heads + 2 * kv_heads, kv.head_dim).transpose(1, 2)
    q, k, v = rows.split_with_sizes([heads, kv_heads, kv_heads], dim=1)
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
    out[start:end].view(1, end - start, heads, kv.head_dim).copy_(a.transpose(1, 2))


def kv_form(kv: KVLayer) -> KvForm:
    """How the kernels read the cache on its device."""
    if kv.scales is None:
        return PLAIN
    card = facts_of(kv.k.device)
    if card is None:
        return BY_BITS
    return NATIVE if card.has_fp8 else BY_CODE


def _scales(kv: KVLayer) -> Tensor:
    """A pointer for the kernel; it is not read where there are none."""
    return kv.k if kv.scales is None else kv.scales


def _weight(norm: Norm | None, rope: Rope) -> Tensor:
    """A pointer for the kernel; it is not read where there is no norm."""
    return rope.cos if norm is None else norm.weight


def _eps(norm: Norm | None) -> float:
    return 0.0 if norm is None else norm.eps
