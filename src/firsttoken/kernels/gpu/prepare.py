"""The head of a graphed step: what the host sent becomes token ids, positions and cache slots."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "single"], do_not_specialize_on_alignment=["token_ids", "rope_rows", "slots"])
def prepare_rows_kernel(
    inputs,  # [3, rows] int32 first: token id (-1: the slot's last sampled one), slot, context (0: padding)
    last_ids,  # [sequences] int64
    tables,  # [sequences, table_width] int32
    table_width,
    token_ids,  # [rows] int64, out
    rope_rows,  # [rows] int64, out
    slots,  # [rows] int64, out
    split_tokens,  # [1] int32, out: see row_attention
    programs,  # how many attention programs fill the card
    rows,
    single,  # leading rows, at most ROWS_PAD, that the split attention runs
    ROWS_PAD: tl.constexpr,  # rows a program
    BLOCK: tl.constexpr,
    BT: tl.constexpr,
    KV_HEADS: tl.constexpr,
):
    i = tl.program_id(0) * ROWS_PAD + tl.arange(0, ROWS_PAD)
    mask = i < rows
    given = tl.load(inputs + i, mask=mask, other=0)
    slot = tl.load(inputs + rows + i, mask=mask, other=0)
    context = tl.load(inputs + 2 * rows + i, mask=mask, other=0)
    real = mask & (context > 0)
    sampled = tl.load(last_ids + slot, mask=real & (given < 0), other=0)
    position = tl.maximum(context - 1, 0)
    block = tl.load(tables + slot.to(tl.int64) * table_width + position // BLOCK, mask=real, other=0)
    tl.store(token_ids + i, tl.where(given < 0, sampled, given.to(tl.int64)), mask=mask)
    tl.store(rope_rows + i, position.to(tl.int64), mask=mask)
    tl.store(slots + i, tl.where(real, block.to(tl.int64) * BLOCK + position % BLOCK, -1), mask=mask)
    if tl.program_id(0) == 0:
        work = tl.sum(tl.where(i < single, context, 0).to(tl.int64), axis=0) * KV_HEADS
        tl.store(split_tokens, tl.maximum(tl.cdiv(work, programs), BT).to(tl.int32))
