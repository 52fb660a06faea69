"""What a GPU step needs from the host, in one small copy, and the attention plan made of it on the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton
from torch import Tensor

from firsttoken.engine.batch import Batch
from firsttoken.engine.step_shape import DECODE_BUCKETS, StepShape, Tile, most_numbers
from firsttoken.kernels.gpu.call import run_kernel
from firsttoken.kernels.gpu.launch import attention_programs, row_tile
from firsttoken.kernels.gpu.prepare import prepare_rows_kernel
from firsttoken.kernels.plan import AttentionPlan, ChunkTiles, KVLayer, TokenRows

_PREPARE_ROWS = 1024  # rows a program of the preparing kernel, unless more run singly
_RING = 3  # host buffers: two steps may be queued while a third is filled


class CudaInputs:
    """Owns the block tables of all slots on the device, and the pinned buffers that steps are sent through."""

    def __init__(
        self,
        cache: KVLayer,
        last_ids: Tensor,
        *,
        table_shape: tuple[int, int],
        max_tokens: int,
        num_heads: int,
        scale: float,
        sizes: Sequence[int] = DECODE_BUCKETS,
    ) -> None:
        """`cache` is any layer's; `last_ids` [sequences] int64 is the runner's; `max_tokens` of a step; `sizes`: rows
        that decode steps are padded to.
        """
        self.device = last_ids.device
        self._cache, self._last_ids = cache, last_ids
        self._num_heads, self._scale = num_heads, scale
        self.tables = torch.zeros(table_shape, dtype=torch.int32, device=self.device)
        most = most_numbers(table_shape[0], max_tokens, sizes)
        pinned = self.device.type == "cuda"
        self._hosts = [torch.zeros(most, dtype=torch.int32, pin_memory=pinned) for _ in range(_RING)]
        self._turn = 0

    def update_tables(self, batch: Batch) -> None:
        """Takes over the blocks that the batch's sequences got: before every step."""
        where, blocks = batch.table_updates
        if len(where):
            both = torch.from_numpy(np.stack([where, blocks])).pin_memory().to(self.device, non_blocking=True)
            self.tables.view(-1)[both[0]] = both[1].to(torch.int32)

    def new(self, shape: StepShape) -> Tensor:
        """A device buffer for what the host sends of a step of this shape."""
        return torch.zeros(shape.size, dtype=torch.int32, device=self.device)

    def send(self, batch: Batch, shape: StepShape, tiles: list[Tile], inputs: Tensor) -> None:
        """Queues the copy of a batch that fits the shape; the host buffer is free again two steps later."""
        host = self._hosts[self._turn][: shape.size]
        self._turn = (self._turn + 1) % _RING
        array = host.numpy()
        array[:] = 0
        tokens = array[: 3 * shape.rows].reshape(3, shape.rows)
        ids = batch.token_ids.copy()
        ids[batch.device_tokens] = -1
        single = batch.num_decode_rows if shape.chunk else len(ids)
        for there, here in ((slice(0, single), slice(0, single)), _moved(single, len(ids), shape)):
            tokens[0, there], tokens[1, there] = ids[here], batch.token_slots[here]
            tokens[2, there] = batch.positions[here] + 1
        if tiles:
            array[3 * shape.rows :].reshape(2, shape.tiles)[:, : len(tiles)] = np.array(tiles, dtype=np.int32).T
        inputs.copy_(host, non_blocking=True)

    def plan(self, shape: StepShape, inputs: Tensor, library: Tile | None = None) -> tuple[Tensor, AttentionPlan]:
        """Token ids [rows] and the plan, made on the device from what was sent."""
        rows, cache = shape.rows, self._cache
        _, slots, contexts = inputs[: 3 * rows].view(3, rows)
        token_ids, rope_rows, kv_slots = torch.empty(3, rows, dtype=torch.int64, device=self.device)
        programs = attention_programs(self.device)
        most_parts = shape.single + triton.cdiv(programs, cache.num_kv_heads)
        parts = torch.empty(6, most_parts, dtype=torch.int32, device=self.device)
        # Few forms of the kernel, for each is compiled: a small one for small steps, whose time it is part of
        pad = 32 if rows <= 32 else max(_PREPARE_ROWS, triton.next_power_of_2(shape.single))
        run_kernel(
            prepare_rows_kernel,
            (triton.cdiv(rows, pad),),
            inputs,
            self._last_ids,
            self.tables,
            self.tables.stride(0),
            token_ids,
            rope_rows,
            kv_slots,
            parts,
            most_parts,
            programs,
            rows,
            shape.single,
            row_tile(self.device, cache.head_dim, shape.single, fp8_cache=cache.scales is not None).tokens,
            int(shape.fused),
            ROWS_PAD=pad,
            PARTS_PAD=max(64 if rows <= 32 else 512, triton.next_power_of_2(most_parts)),
            BLOCK=cache.block_size,
            KV_HEADS=cache.num_kv_heads,
        )
        return token_ids, AttentionPlan(
            num_heads=self._num_heads,
            scale=self._scale,
            num_tokens=rows,
            num_rows=rows,
            num_decode_rows=shape.single,
            rope_rows=rope_rows,
            slots=kv_slots,
            query_start=slots,
            context_lens=contexts,
            block_tables=self.tables,
            host_rows=[],
            rows=self._token_rows(shape, parts) if shape.single else None,
            chunks=ChunkTiles(
                tiles=inputs[3 * rows :].view(2, shape.tiles),
                contexts=contexts,
                table_rows=slots,
                tables=self.tables,
                tile=shape.tile,
                library=library,
            )
            if shape.chunk
            else None,
        )

    def _token_rows(self, shape: StepShape, parts: Tensor) -> TokenRows:
        rows, kv_heads, most_parts = shape.single, self._cache.num_kv_heads, parts.shape[1]
        group = triton.next_power_of_2(self._num_heads // kv_heads)
        return TokenRows(
            count=rows,
            fused=shape.fused,
            tables=self.tables,
            parts=parts,
            partial=torch.empty(most_parts, kv_heads, group, self._cache.head_dim, device=self.device),
            partial_ml=torch.empty(most_parts, kv_heads, 2, group, device=self.device),
            arrivals=torch.zeros(rows, kv_heads, dtype=torch.int32, device=self.device),
        )


def _moved(single: int, tokens: int, shape: StepShape) -> tuple[slice, slice]:
    """Where the tokens after the single ones lie in the padded step, and in the batch."""
    return slice(shape.single, shape.single + tokens - single), slice(single, tokens)
