"""Greedy choice on the device in two stages: the best of each slice of the vocabulary, then the best slice.

Ties go to the lowest id, as torch.argmax does on a CPU; ids from `limit` up are padding and never win.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def argmax_slices_kernel(
    logits,  # [rows, V] float32
    best_value,  # [rows, slices] float32
    best_id,  # [rows, slices] int32
    limit,
    V: tl.constexpr,
    BV: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    part = tl.program_id(0)
    row = tl.program_id(1)
    v = part * BV + tl.arange(0, BV)
    x = tl.load(logits + row.to(tl.int64) * V + v, mask=v < limit, other=float("-inf")).to(tl.float32)
    x = tl.where(x == x, x, float("-inf"))  # NaN counts as impossible
    value, index = tl.max(x, axis=0, return_indices=True, return_indices_tie_break_left=True)
    at = row * tl.num_programs(0) + part
    tl.store(best_value + at, value)
    tl.store(best_id + at, part * BV + index)


@triton.jit(do_not_specialize=["rows"])
def argmax_merge_kernel(
    best_value,  # [rows, slices]
    best_id,
    out,  # [rows] int64
    inputs,  # as in `prepare`: says each row's slot and whether it is real
    last_ids,  # [sequences] int64: the choice becomes the slot's last id
    slices,
    rows,
    BS: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    i = tl.arange(0, BS)
    value = tl.load(best_value + row * slices + i, mask=i < slices, other=float("-inf"))
    _, index = tl.max(value, axis=0, return_indices=True, return_indices_tie_break_left=True)
    token = tl.load(best_id + row * slices + index).to(tl.int64)
    tl.store(out + row, token)
    if tl.load(inputs + 2 * rows + row) > 0:
        tl.store(last_ids + tl.load(inputs + rows + row), token)
