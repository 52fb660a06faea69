"""Drawing among a row's likeliest ids: top-k, top-p and min-p together, without sorting the vocabulary.

Two stages: each program keeps the best of one slice of the vocabulary, then one program a row merges those and draws.
What is compared is a logit and its id in one number, so equal logits are ordered by id wherever the slices end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from firsttoken.kernels.gpu.call import run_kernel

if TYPE_CHECKING:
    from torch import Tensor

CANDIDATES = 64  # the largest top-k drawn here
_SLICE = 4096  # ids a program of the first stage looks at
_NOTHING = tl.constexpr(-(2**63))


@triton.jit
def _ordered(bits):
    """A float32's bits as an int32 that compares as the float does, and the other way round."""
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit(do_not_specialize=["limit"])
def best_of_slices_kernel(
    logits,  # [rows, stride] float32
    stride,
    best,  # [rows, slices, COUNT] int64, out: best first
    slices,
    limit,  # ids from here up are padding
    COUNT: tl.constexpr,
    BV: tl.constexpr,
):
    part = tl.program_id(0)
    row = tl.program_id(1)
    i = part * BV + tl.arange(0, BV)
    v = tl.load(logits + row.to(tl.int64) * stride + i, mask=i < limit, other=float("-inf"))
    v = tl.where(v != v, float("-inf"), v)
    key = (_ordered(v.to(tl.int32, bitcast=True)).to(tl.int64) << 32) | (0x7FFFFFFF - i).to(tl.int64)
    key = tl.where(i < limit, key, _NOTHING)
    at = best + (row.to(tl.int64) * slices + part) * COUNT + tl.arange(0, COUNT)
    tl.store(at, tl.topk(key, COUNT))


@triton.jit(do_not_specialize=["rows"])
def draw_kernel(
    best,  # [rows, slices, COUNT] int64
    slices,
    parameters,  # [5, rows] float64: temperature, top-k (0: off), top-p, min-p, and a number in [0, 1)
    ids,  # [rows] int64, out
    rows,
    COUNT: tl.constexpr,
    ALL: tl.constexpr,  # the power of two from slices * COUNT up
):
    row = tl.program_id(0)
    i = tl.arange(0, ALL)
    key = tl.load(best + row.to(tl.int64) * slices * COUNT + i, mask=i < slices * COUNT, other=_NOTHING)
    top = tl.topk(key, COUNT)
    token = 0x7FFFFFFF - (top & 0x7FFFFFFF)
    value = _ordered((top >> 32).to(tl.int32)).to(tl.float32, bitcast=True)
    value = tl.where(top == _NOTHING, float("-inf"), value)
    temperature = tl.load(parameters + row).to(tl.float32)
    top_k = tl.load(parameters + rows + row).to(tl.int32)
    top_k = tl.where(top_k > 0, top_k, COUNT)
    top_p = tl.load(parameters + 2 * rows + row)
    min_p = tl.load(parameters + 3 * rows + row).to(tl.float32)
    uniform = tl.load(parameters + 4 * rows + row)
    rank = tl.arange(0, COUNT)
    largest = tl.maximum(tl.max(value, axis=0), -3.4028234663852886e38)
    weight = tl.exp((value - largest) / temperature)
    weight = tl.where(rank < top_k, weight, 0.0)
    sums = tl.cumsum(weight.to(tl.float64), axis=0)
    mass = tl.max(sums, axis=0)
    weight = tl.where((sums - weight < top_p * mass) & (weight >= min_p), weight, 0.0)
    sums = tl.cumsum(weight.to(tl.float64), axis=0)
    passed = tl.sum((sums <= uniform * tl.max(sums, axis=0)).to(tl.int32), axis=0)
    last = tl.maximum(tl.sum((weight > 0).to(tl.int32), axis=0) - 1, 0)  # what is kept is a prefix
    chosen = tl.minimum(passed, last)
    tl.store(ids + row, tl.sum(tl.where(rank == chosen, token, 0), axis=0))


def draw_top(logits: Tensor, parameters: Tensor, *, count: int = CANDIDATES, width: int = _SLICE) -> Tensor:
    """As `kernels.sampling.draw` with a bucket of `count`: logits [rows, ids] float32 -> [rows] int64.

    parameters [5, rows] float64: temperature, top-k (1 to `count`, or 0 for all of those), top-p, min-p, uniform.
    `width`: ids a program looks at; a power of two, as `count` is.
    """
    import torch  # not above: a process that only compiles the kernels need not wait for it

    rows, limit = logits.shape
    slices = triton.cdiv(limit, width)
    best = torch.empty(rows, slices, count, dtype=torch.int64, device=logits.device)
    ids = torch.empty(rows, dtype=torch.int64, device=logits.device)
    run_kernel(
        best_of_slices_kernel,
        (slices, rows),
        logits,
        logits.stride(0),
        best,
        slices,
        limit,
        COUNT=count,
        BV=width,
        num_warps=8,
    )
    merged = triton.next_power_of_2(slices * count)
    run_kernel(draw_kernel, (rows,), best, slices, parameters, ids, rows, COUNT=count, ALL=merged, num_warps=8)
    return ids
