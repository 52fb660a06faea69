"""Attention on a GPU: single tokens by our own split kernel, chunks of a prompt by the library's."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from firsttoken.kernels.gpu.gather import gather_kernel
from firsttoken.kernels.gpu.ops import dependent, overlap
from firsttoken.kernels.gpu.rope_cache import rope_cache_kernel
from firsttoken.kernels.gpu.row_attention import row_attention_kernel
from firsttoken.kernels.linear import Norm
from firsttoken.kernels.plan import AttentionPlan, KVLayer, Rope, TokenRows

_LOG2E = 1.0 / math.log(2.0)
_TILE = 64  # tokens of the cache a tile
_GROUP_PAD = 16  # the matrix units' smallest tile
_CUDNN_FROM = 1024  # tokens of a whole prompt from which cuDNN's kernel is the faster one


def attention(
    qkv: Tensor, q_norm: Norm | None, k_norm: Norm | None, rope: Rope, kv: KVLayer, plan: AttentionPlan
) -> Tensor:
    """As `kernels.attention`. The plan's `rows` say which leading tokens run singly."""
    tokens = len(qkv)
    out = qkv.new_empty(tokens, plan.num_heads * kv.head_dim)
    rows = plan.rows
    single = 0 if rows is None else rows.count
    if rows is not None and single:
        if not rows.fused:
            _rope_cache(qkv[:single], q_norm, k_norm, rope, kv, plan, 0)
        _single(qkv, q_norm, k_norm, rope, kv, plan, rows, out)
    if single < tokens:
        _rope_cache(qkv[single:], q_norm, k_norm, rope, kv, plan, single)
        _chunks(qkv, kv, plan, single, out)
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
    row_attention_kernel[(rows.splits, kv.num_kv_heads, rows.count)](
        qkv,
        _weight(q_norm, rope),
        _weight(k_norm, rope),
        rope.cos,
        rope.sin,
        kv.k,
        kv.v,
        plan.rope_rows,
        plan.slots,
        rows.contexts,
        rows.table_rows,
        rows.tables,
        rows.tables.stride(0),
        rows.split_tokens,
        rows.partial,
        rows.partial_ml,
        rows.arrivals,
        out,
        plan.scale * _LOG2E,
        _eps(q_norm),
        KV_HEADS=kv.num_kv_heads,
        GROUP=plan.num_heads // kv.num_kv_heads,
        GROUP_PAD=_GROUP_PAD,
        HEAD_DIM=kv.head_dim,
        BLOCK=kv.block_size,
        BT=_TILE,
        SPLITS=rows.splits,
        STAGES=2,
        QK_NORM=q_norm is not None,
        FUSED=rows.fused,
        PDL=pdl,
        num_warps=8 if rows.count == 1 else 4,
        **overlap(pdl),
    )


def _rope_cache(
    qkv: Tensor, q_norm: Norm | None, k_norm: Norm | None, rope: Rope, kv: KVLayer, plan: AttentionPlan, first: int
) -> None:
    pdl = dependent(qkv)
    rope_cache_kernel[(len(qkv),)](
        qkv,
        _weight(q_norm, rope),
        _weight(k_norm, rope),
        rope.cos,
        rope.sin,
        kv.k,
        kv.v,
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
        PDL=pdl,
        num_warps=4,
        **overlap(pdl),
    )


def _chunks(qkv: Tensor, kv: KVLayer, plan: AttentionPlan, first: int, out: Tensor) -> None:
    """Rows after the single ones: rotated, their keys and values already in the cache."""
    heads, kv_heads, head_dim = plan.num_heads, kv.num_kv_heads, kv.head_dim
    q, k, v = qkv.view(len(qkv), heads + 2 * kv_heads, head_dim).split_with_sizes([heads, kv_heads, kv_heads], dim=1)
    target = out.view(len(out), heads, head_dim)
    rows = [(i, *row) for i, row in enumerate(plan.host_rows) if row[0] >= first]
    if len(rows) == 1 and rows[0][2] - rows[0][1] == rows[0][3] >= _CUDNN_FROM:
        _, start, end, _ = rows[0]
        q1, k1, v1 = (part[start:end].transpose(0, 1)[None] for part in (q, k, v))
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
            a = F.scaled_dot_product_attention(q1, k1, v1, is_causal=True, scale=plan.scale, enable_gqa=True)
        target[start:end] = a[0].transpose(0, 1)
        return
    queries = [end - start for _, start, end, _ in rows]
    contexts = [context for *_, context in rows]
    begin, stop = rows[0][1], rows[-1][2]
    if queries == contexts:
        keys, values = k[begin:stop], v[begin:stop]
    else:
        keys, values = gather(kv, plan, [(i, context) for i, _, _, context in rows])
    a = torch.ops.aten._flash_attention_forward(
        q[begin:stop],
        keys,
        values,
        _offsets(queries, qkv.device),
        _offsets(contexts, qkv.device),
        max(queries),
        max(contexts),
        0.0,
        True,
        False,
        scale=plan.scale,
    )[0]
    target[begin:stop] = a


def gather(kv: KVLayer, plan: AttentionPlan, rows: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """Keys and values of the plan's rows (row, context), one after the other: each [contexts, kv_heads, head_dim]."""
    total = sum(context for _, context in rows)
    keys = kv.k.new_empty(total, kv.num_kv_heads, kv.head_dim)
    values = torch.empty_like(keys)
    width = kv.num_kv_heads * kv.head_dim
    at = 0
    for row, context in rows:
        gather_kernel[(context,)](
            kv.k,
            kv.v,
            plan.block_tables[row],
            keys[at:],
            values[at:],
            KV_HEADS=kv.num_kv_heads,
            HEAD_DIM=kv.head_dim,
            BLOCK=kv.block_size,
            WIDTH=triton.next_power_of_2(width),
            num_warps=4,
        )
        at += context
    return keys, values


def _offsets(lengths: list[int], device: torch.device) -> Tensor:
    sums = [0]
    for length in lengths:
        sums.append(sums[-1] + length)
    return torch.tensor(sums, dtype=torch.int32, pin_memory=device.type == "cuda").to(device, non_blocking=True)


def _weight(norm: Norm | None, rope: Rope) -> Tensor:
    """A pointer for the kernel; it is not read where there is no norm."""
    return rope.cos if norm is None else norm.weight


def _eps(norm: Norm | None) -> float:
    return 0.0 if norm is None else norm.eps
