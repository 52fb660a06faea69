"""QK-norm and RoPE in place on rows that may share a sequence, their keys and values written to the paged cache."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from firsttoken.kernels.gpu.e4m3 import encode
from firsttoken.kernels.gpu.row_attention import norm_rope


@triton.jit(do_not_specialize_on_alignment=["rope_rows", "slots"])  # views of one buffer: compiled once
def rope_cache_kernel(
    qkv,  # [tokens, (heads + 2 kv_heads) * HEAD_DIM], q and k are rewritten
    q_weight,  # [HEAD_DIM]
    k_weight,
    cos,  # [positions, HEAD_DIM / 2] float32
    sin,
    k_cache,  # [blocks, kv_heads, BLOCK, HEAD_DIM]
    v_cache,
    kv_scales,  # [2, KV_HEADS] float32; of an FP8 cache
    rope_rows,  # [tokens] int64
    slots,  # [tokens] int64, -1 writes nothing
    eps,
    HEADS: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    KV_HEADS: tl.constexpr,
    KV_PAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    QK_NORM: tl.constexpr,
    KV_FORM: tl.constexpr,  # see `e4m3`
    PDL: tl.constexpr,
):
    if PDL:
        gdc_launch_dependents()
    token = tl.program_id(0).to(tl.int64)
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    HALF: tl.constexpr = HEAD_DIM // 2
    d = tl.arange(0, HEAD_DIM)
    h = tl.arange(0, HEADS_PAD)
    kh = tl.arange(0, KV_PAD)
    kh_mask = kh[:, None] < KV_HEADS
    half = tl.arange(0, HALF)
    rope_row = tl.load(rope_rows + token)
    c = tl.load(cos + rope_row * HALF + half)
    s = tl.load(sin + rope_row * HALF + half)
    slot = tl.load(slots + token)
    q_norm = tl.load(q_weight + d).to(tl.float32) if QK_NORM else 1.0
    k_norm = tl.load(k_weight + d).to(tl.float32) if QK_NORM else 1.0
    if PDL:
        gdc_wait()

    q_at = qkv + token * WIDTH + h[:, None] * HEAD_DIM + d[None, :]
    q = tl.load(q_at, mask=h[:, None] < HEADS, other=0.0)
    k_at = qkv + token * WIDTH + (HEADS + kh[:, None]) * HEAD_DIM + d[None, :]
    k = tl.load(k_at, mask=kh_mask, other=0.0)
    v = tl.load(k_at + KV_HEADS * HEAD_DIM, mask=kh_mask, other=0.0)
    tl.store(q_at, norm_rope(q.to(tl.float32), q_norm, c, s, eps, HEAD_DIM, QK_NORM), mask=h[:, None] < HEADS)
    k = norm_rope(k.to(tl.float32), k_norm, c, s, eps, HEAD_DIM, QK_NORM)
    tl.store(k_at, k, mask=kh_mask)
    if slot >= 0:
        at = ((slot // BLOCK * KV_HEADS + kh[:, None]) * BLOCK + slot % BLOCK) * HEAD_DIM + d[None, :]
        if KV_FORM:
            heads = kv_scales + kh[:, None]
            k_code = encode(k / tl.load(heads, mask=kh_mask, other=1.0))
            v_code = encode(v.to(tl.float32) / tl.load(heads + KV_HEADS, mask=kh_mask, other=1.0))
            tl.store(k_cache + at, k_code, mask=kh_mask)
            tl.store(v_cache + at, v_code, mask=kh_mask)
        else:
            tl.store(k_cache + at, k.to(k_cache.dtype.element_ty), mask=kh_mask)
            tl.store(v_cache + at, v.to(v_cache.dtype.element_ty), mask=kh_mask)
