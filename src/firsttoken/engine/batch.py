"""A step plan as arrays: what the model, attention and the sampler read."""

from __future__ import annotations

import math
from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firsttoken.engine.step_plan import PlanRow, StepPlan
from firsttoken.kernels.plan import AttentionPlan

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """A row's positions whose next token is a known prompt token and is to be scored."""

    row: int  # of the plan
    tokens: Ints  # rows of the hidden states
    targets: Ints  # the prompt's next token at each
    count: int  # likeliest ids wanted beside it


@dataclass(frozen=True, slots=True)
class Batch:
    """One step on the host. Sizes: `tokens` new tokens in `rows` sequences, in the plan's order."""

    step_id: int
    num_decode_rows: int  # leading rows of one token
    token_ids: Ints  # [tokens]; 0 where the token is still on the device
    device_tokens: Ints  # indices of those
    device_slots: Ints  # and the slots whose last sampled id they are
    positions: Ints  # [tokens]
    lengths: Ints  # [tokens] what a dynamic RoPE takes for the token's sequence length
    kv_slots: Ints  # [tokens] flat cache slots
    token_slots: Ints  # [tokens] the sequence's slot
    table_updates: tuple[Ints, Ints]  # what changed in the table of all slots, flattened: where, and the block ids
    query_start: NDArray[np.int32]  # [rows + 1]
    context_lens: NDArray[np.int32]  # [rows]
    block_tables: NDArray[np.int32]  # [rows, max_blocks]
    host_rows: list[tuple[int, int, int]]  # (query start, query end, context)
    sampling_indices: list[int]  # rows of the plan that sample
    sampling_rows: list[PlanRow]
    sampling_tokens: Ints  # the last token of each sampling row
    prompt_logprobs: list[PromptLogprobs]

    def input_ids(self, last_ids: Tensor) -> Tensor:
        """[tokens] int64 on the device of `last_ids` [slots], which holds each slot's newest sampled id."""
        ids = to_device(self.token_ids, last_ids.device)
        if len(self.device_tokens):
            tokens = to_device(self.device_tokens, last_ids.device)
            ids[tokens] = last_ids[to_device(self.device_slots, last_ids.device)]
        return ids

    def attention_plan(self, rope_rows: Tensor, num_heads: int, scale: float) -> AttentionPlan:
        """The plan on the device of `rope_rows` [tokens]."""
        device = rope_rows.device
        return AttentionPlan(
            num_heads=num_heads,
            scale=scale,
            num_tokens=len(self.token_ids),
            num_rows=len(self.host_rows),
            num_decode_rows=self.num_decode_rows,
            rope_rows=rope_rows,
            slots=to_device(self.kv_slots, device),
            query_start=to_device(self.query_start, device),
            context_lens=to_device(self.context_lens, device),
            block_tables=to_device(self.block_tables, device),
            host_rows=self.host_rows,
        )


def to_device(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """A tensor of the array; to CUDA through pinned memory, so that the host does not wait."""
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that, on a CPU, cost neither time nor memory until a page of them is touched."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # NumPy asks the system for zeroed pages, where torch would write the zeros
    flat = np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(flat).view(dtype).view(shape)


class BatchBuilder:
    """Builds batches; keeps every slot's block table as an array row, so that a decode step copies only new blocks.

    Within one epoch of a sequence its block list only grows.
    """

    def __init__(self, *, max_num_seqs: int, max_model_len: int, block_size: int) -> None:
        self._block_size = block_size
        width = -(-max_model_len // block_size) + 1
        self._tables = np.zeros((max_num_seqs, width), dtype=np.int32)
        self._filled = [0] * max_num_seqs

    def build(self, plan: StepPlan) -> Batch:
        """Reads the plan's sequences now; nothing of them is kept."""
        rows = plan.rows
        grown = [update for row in rows if (update := self._extend_table(row)) is not None]
        slots = np.array([row.seq.slot for row in rows], dtype=np.int64)
        starts = np.array([row.start for row in rows], dtype=np.int64)
        counts = np.array([row.num_tokens for row in rows], dtype=np.int64)
        prompts = np.array([row.seq.num_prompt_tokens for row in rows], dtype=np.int64)
        ends = starts + counts
        first = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(counts, out=first[1:])

        decode = 0
        while decode < len(rows) and rows[decode].num_tokens == 1:
            decode += 1
        token_ids, device_tokens, device_slots = _token_ids(rows, first)
        row_of = np.repeat(np.arange(len(rows)), counts)  # [tokens]
        positions = starts[row_of] + np.arange(len(row_of)) - first[row_of]
        block, offset = np.divmod(positions, self._block_size)
        kv_slots = self._tables[slots[row_of], block].astype(np.int64) * self._block_size + offset
        max_blocks = -(-int(ends.max()) // self._block_size)
        samples = [i for i, row in enumerate(rows) if row.samples]
        return Batch(
            step_id=plan.step_id,
            num_decode_rows=decode,
            token_ids=token_ids,
            device_tokens=np.array(device_tokens, dtype=np.int64),
            device_slots=np.array(device_slots, dtype=np.int64),
            positions=positions,
            lengths=np.maximum(prompts[row_of], positions + 1),
            kv_slots=kv_slots,
            token_slots=slots[row_of],
            table_updates=self._updates(grown),
            query_start=first.astype(np.int32),
            context_lens=ends.astype(np.int32),
            block_tables=self._tables[:, :max_blocks][slots],
            host_rows=list(zip(first[:-1].tolist(), first[1:].tolist(), ends.tolist(), strict=True)),
            sampling_indices=samples,
            sampling_rows=[rows[i] for i in samples],
            sampling_tokens=first[1:][samples] - 1,
            prompt_logprobs=_prompt_logprobs(rows, first),
        )

    @property
    def table_shape(self) -> tuple[int, int]:
        """Of the table of all slots: [sequences, blocks]."""
        return self._tables.shape[0], self._tables.shape[1]

    def _extend_table(self, row: PlanRow) -> tuple[int, int, int] | None:
        """Takes over new blocks; the slot and the range of its table that changed."""
        slot, blocks = row.seq.slot, row.seq.block_ids
        have = 0 if row.fresh else self._filled[slot]
        if have == len(blocks):
            return None
        self._tables[slot, have : len(blocks)] = blocks[have:]
        self._filled[slot] = len(blocks)
        return slot, have, len(blocks)

    def _updates(self, grown: list[tuple[int, int, int]]) -> tuple[Ints, Ints]:
        if not grown:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        width = self._tables.shape[1]
        where = np.concatenate([np.arange(slot * width + have, slot * width + end) for slot, have, end in grown])
        return where, self._tables.reshape(-1)[where].astype(np.int64)


def _token_ids(rows: Many[PlanRow], first: Ints) -> tuple[Ints, list[int], list[int]]:
    """The ids the host knows, and where and from which slots the others come."""
    ids: list[int] = []
    device_tokens: list[int] = []
    device_slots: list[int] = []
    for row in rows:
        known = row.seq.token_ids
        if row.end <= len(known):
            if row.num_tokens == 1:
                ids.append(known[row.start])
            else:
                ids += known[row.start : row.end]
        else:
            assert row.end == len(known) + 1, "a row may hold one token that the host has not seen"
            assert not row.fresh, "a slot just taken holds no sampled token"
            ids += known[row.start :]
            device_tokens.append(len(ids))
            device_slots.append(row.seq.slot)
            ids.append(0)
    assert len(ids) == first[-1]
    return np.array(ids, dtype=np.int64), device_tokens, device_slots


def _prompt_logprobs(rows: Many[PlanRow], first: Ints) -> list[PromptLogprobs]:
    wanted = []
    for i, row in enumerate(rows):
        count = row.seq.prompt_logprobs
        end = min(row.end, row.seq.num_prompt_tokens - 1)
        if count is None or row.start >= end:
            continue
        targets = np.array(row.seq.token_ids[row.start + 1 : end + 1], dtype=np.int64)
        wanted.append(PromptLogprobs(i, first[i] + np.arange(end - row.start), targets, count))
    return wanted
