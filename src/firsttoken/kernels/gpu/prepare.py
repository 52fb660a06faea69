"""The head of a graphed step: what the host sent becomes token ids, positions, cache slots and attention's parts."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(
    do_not_specialize=["table_width", "rows", "single", "programs", "part_count", "tile", "fused"],
    do_not_specialize_on_alignment=["token_ids", "rope_rows", "slots"],
)
def prepare_rows_kernel(
    inputs,  # [3, rows] int32 first: token id (-1: the slot's last sampled one), slot, context (0: padding)
    last_ids,  # [sequences] int64
    tables,  # [sequences, table_width] int32
    table_width,
    token_ids,  # [rows] int64, out
    rope_rows,  # [rows] int64, out
    slots,  # [rows] int64, out
    parts,  # [6, part_count] int32, out: see row_attention
    part_count,  # at least single + programs / KV_HEADS
    programs,  # how many attention programs fill the card
    rows,
    single,  # leading rows, at most ROWS_PAD, whose contexts are cut into parts
    tile,  # tokens of the shortest part
    fused,  # 1: a row's own token is not in the cache yet
    ROWS_PAD: tl.constexpr,  # rows a program
    PARTS_PAD: tl.constexpr,  # the power of two from part_count up
    BLOCK: tl.constexpr,
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
        # As few parts as fill the card: the longest that a part may be is the same for every row.
        has_row = real & (i < single)
        cached = tl.where(has_row, context - fused, 0)
        tokens = tl.cdiv(tl.sum(cached.to(tl.int64), axis=0) * KV_HEADS, programs)
        longest = tl.maximum(tl.cdiv(tokens, tile), 1) * tile
        wanted = tl.maximum(tl.cdiv(cached, longest), 1).to(tl.int32)
        size = tl.maximum(tl.cdiv(tl.cdiv(cached, wanted), tile), 1) * tile
        count = tl.where(has_row, tl.maximum(tl.cdiv(cached, size), 1), 0)
        first = tl.cumsum(count, axis=0) - count
        for index in range(tl.max(count, axis=0)):
            at = parts + first + index
            there = index < count
            tl.store(at, i, mask=there)
            tl.store(at + part_count, slot, mask=there)
            tl.store(at + 2 * part_count, index * size, mask=there)
            tl.store(at + 3 * part_count, tl.minimum((index + 1) * size, cached), mask=there)
            tl.store(at + 4 * part_count, index, mask=there)
            tl.store(at + 5 * part_count, count, mask=there)
        p = tl.arange(0, PARTS_PAD)
        tl.store(parts + p, -1, mask=(p >= tl.sum(count, axis=0)) & (p < part_count))
