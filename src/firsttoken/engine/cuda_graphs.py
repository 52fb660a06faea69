"""Steps of few tokens on a GPU as CUDA graphs: the host queues one launch where there would be two hundred.

A graph is captured for each bucket of token counts, the largest first; a step pads up into the smallest that holds it.
Decode buckets run rows of one sequence each, through the fused attention; token buckets run a few tokens of whatever
sequences (short prompts, a follow-up over a cached prefix, decode rows beside them), each token as a row of its own.
What changes from step to step (ids, slots, contexts) arrives in one small copy; the rest is made on the device.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import torch
import triton
from torch import Tensor

from firsttoken.engine.batch import Batch, Ints
from firsttoken.kernels.gpu.argmax import argmax_merge_kernel, argmax_slices_kernel
from firsttoken.kernels.gpu.launch import attention_programs
from firsttoken.kernels.gpu.ops import dependent, overlap
from firsttoken.kernels.gpu.prepare import prepare_rows_kernel
from firsttoken.kernels.plan import AttentionPlan, KVLayer, Rope, TokenRows
from firsttoken.model.decoder import Decoder

DECODE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKEN_BUCKETS = (16, 32, 64, 128)
_SPLIT_TILE = 64  # tokens; the shortest split
_SLICE = 2048  # ids an argmax program looks at
_RING = 3  # host buffers: two steps may be queued while a third is filled


def most_splits(rows: int) -> int:
    """Attention programs a row and KV head in a graph of this many rows: long contexts need them most when alone."""
    return 32 if rows <= 2 else 16 if rows <= 8 else 8


@dataclass(frozen=True, slots=True)
class _Captured:
    forward: torch.cuda.CUDAGraph
    choose: torch.cuda.CUDAGraph | None  # greedy choice, after a decode graph's logits
    inputs: Tensor  # [3, rows] int32: token id or -1, slot, context
    hidden: Tensor  # [rows, hidden]
    logits: Tensor | None  # [rows, vocab] float32
    ids: Tensor | None  # [rows] int64


class StepGraphs:
    """Owns the graphs, their buffers, and the block tables of all slots on the device."""

    def __init__(
        self,
        decoder: Decoder,
        rope: Rope,
        kv: Many[KVLayer],
        last_ids: Tensor,
        *,
        table_shape: tuple[int, int],
        vocabulary: int,
        scale: float,
    ) -> None:
        """`last_ids` [sequences] int64 is the runner's; ids from `vocabulary` up are padding."""
        self._decoder, self._rope, self._kv, self._last_ids = decoder, rope, kv, last_ids
        self._vocabulary, self._scale = vocabulary, scale
        self._device = last_ids.device
        self._max_num_seqs = table_shape[0]
        self._tables = torch.zeros(table_shape, dtype=torch.int32, device=self._device)
        most = max(*DECODE_BUCKETS, *TOKEN_BUCKETS)
        self._hosts = [torch.zeros(3 * most, dtype=torch.int32, pin_memory=True) for _ in range(_RING)]
        self._turn = 0
        self._decode: dict[int, _Captured] = {}
        self._tokens: dict[int, _Captured] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self) -> None:
        """Captures every graph, the largest first, so that a smaller one can take the same memory."""
        for rows in sorted((r for r in DECODE_BUCKETS if r < 2 * self._max_num_seqs), reverse=True):
            self._decode[rows] = self._capture(rows, decode=True)
        for rows in sorted(TOKEN_BUCKETS, reverse=True):
            self._tokens[rows] = self._capture(rows, decode=False)

    def update_tables(self, batch: Batch) -> None:
        """Takes over the blocks that the batch's sequences got: before every step, graphed or not."""
        where, blocks = batch.table_updates
        if len(where):
            both = torch.from_numpy(np.stack([where, blocks])).pin_memory().to(self._device, non_blocking=True)
            self._tables.view(-1)[both[0]] = both[1].to(torch.int32)

    def pick(self, batch: Batch) -> tuple[_Captured, bool] | None:
        """The graph that runs this batch, and whether it is a decode graph; None: it runs without one."""
        tokens = len(batch.token_ids)
        decode = batch.num_decode_rows == tokens
        for rows, graph in sorted((self._decode if decode else self._tokens).items()):
            if rows >= tokens:
                return graph, decode
        return None

    def forward(self, graph: _Captured, batch: Batch) -> None:
        """Queues the step; `graph.hidden` and `graph.logits` then hold its first rows."""
        ids = batch.token_ids.copy()
        ids[batch.device_tokens] = -1
        self._fill(graph, ids, batch.token_slots, batch.positions + 1)
        graph.forward.replay()

    def _fill(self, graph: _Captured, ids: Ints, slots: Ints, contexts: Ints) -> None:
        rows = graph.inputs.shape[1]
        host = self._hosts[self._turn][: 3 * rows].view(3, rows)
        self._turn = (self._turn + 1) % _RING
        array = host.numpy()
        array[:, len(ids) :] = 0
        array[0, : len(ids)], array[1, : len(ids)], array[2, : len(ids)] = ids, slots, contexts
        graph.inputs.copy_(host, non_blocking=True)

    def _capture(self, rows: int, *, decode: bool) -> _Captured:
        inputs = torch.zeros(3, rows, dtype=torch.int32, device=self._device)
        inputs[2, 0] = 1  # one real row, so that the kernels are compiled for what they will do
        hidden, logits = self._run(inputs, decode=decode)  # compiles, and lets the library choose its kernels
        if decode:
            assert logits is not None
            self._choose(inputs, logits)
        torch.cuda.synchronize()
        forward = torch.cuda.CUDAGraph()
        with torch.cuda.graph(forward, pool=self._pool):
            hidden, logits = self._run(inputs, decode=decode)
        if not decode:
            return _Captured(forward, None, inputs, hidden, None, None)
        assert logits is not None
        choose = torch.cuda.CUDAGraph()
        with torch.cuda.graph(choose, pool=self._pool):
            ids = self._choose(inputs, logits)
        return _Captured(forward, choose, inputs, hidden, logits, ids)

    def _run(self, inputs: Tensor, *, decode: bool) -> tuple[Tensor, Tensor | None]:
        rows = inputs.shape[1]
        heads, cache = self._decoder.config.num_heads, self._kv[0]
        token_ids, rope_rows, slots = torch.empty(3, rows, dtype=torch.int64, device=self._device)
        split_tokens = torch.empty(1, dtype=torch.int32, device=self._device)
        splits = most_splits(rows)
        prepare_rows_kernel[(1,)](
            inputs,
            self._last_ids,
            self._tables,
            self._tables.stride(0),
            token_ids,
            rope_rows,
            slots,
            split_tokens,
            attention_programs(self._device.index),
            ROWS=rows,
            ROWS_PAD=triton.next_power_of_2(rows),
            BLOCK=cache.block_size,
            BT=_SPLIT_TILE,
            KV_HEADS=cache.num_kv_heads,
        )
        token_rows = TokenRows(
            count=rows,
            fused=decode,
            contexts=inputs[2],
            table_rows=inputs[1],
            tables=self._tables,
            split_tokens=split_tokens,
            splits=splits,
            partial=self._scratch(rows, splits, 16, cache.head_dim),
            partial_ml=self._scratch(rows, splits, 2, 16),
            arrivals=torch.zeros(rows, cache.num_kv_heads, dtype=torch.int32, device=self._device),
        )
        plan = AttentionPlan(
            num_heads=heads,
            scale=self._scale,
            num_tokens=rows,
            num_rows=rows,
            num_decode_rows=rows,
            rope_rows=rope_rows,
            slots=slots,
            query_start=inputs[0],
            context_lens=inputs[2],
            block_tables=self._tables,
            host_rows=[],
            rows=token_rows,
        )
        hidden = self._decoder.forward(token_ids, self._kv, plan, self._rope)
        return hidden, self._decoder.logits(hidden) if decode else None

    def _scratch(self, rows: int, splits: int, *shape: int) -> Tensor:
        return torch.empty(rows, self._kv[0].num_kv_heads, splits, *shape, dtype=torch.float32, device=self._device)

    def _choose(self, inputs: Tensor, logits: Tensor) -> Tensor:
        rows, width = logits.shape
        slices = triton.cdiv(self._vocabulary, _SLICE)
        values = torch.empty(rows, slices, dtype=torch.float32, device=self._device)
        best = torch.empty(rows, slices, dtype=torch.int32, device=self._device)
        ids = torch.empty(rows, dtype=torch.int64, device=self._device)
        pdl = dependent(logits)
        argmax_slices_kernel[(slices, rows)](
            logits, values, best, self._vocabulary, V=width, BV=_SLICE, PDL=pdl, **overlap(pdl)
        )
        argmax_merge_kernel[(rows,)](
            values,
            best,
            ids,
            inputs,
            self._last_ids,
            slices,
            ROWS=rows,
            BS=triton.next_power_of_2(slices),
            PDL=pdl,
            **overlap(pdl),
        )
        return ids
