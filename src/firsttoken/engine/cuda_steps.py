"""Steps on a GPU: through a CUDA graph where one fits, so that the host queues one launch instead of two hundred.

A graph is captured for each bucket, the largest first; a step pads up into the smallest that holds it. Decode buckets
run rows of one sequence each, through the fused attention; token buckets run a few tokens of whatever sequences (short
prompts, a follow-up over a cached prefix, decode rows beside them), each token as a row of its own; mixed buckets run
decode rows and longer chunks of prompts. What changes from step to step arrives in one small copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from firsttoken.engine.batch import Batch, to_device
from firsttoken.engine.cuda_inputs import CudaInputs
from firsttoken.engine.cuda_libraries import prepare_libraries
from firsttoken.engine.step_ops import StepOps
from firsttoken.engine.step_shape import DECODE_BUCKETS, StepShape, buckets, is_long, library_span, unpadded_shape
from firsttoken.kernels.plan import KVLayer
from firsttoken.model.decoder import Decoder
from firsttoken.model.rope import RopeTable


@dataclass(frozen=True, slots=True)
class Stepped:
    """A queued step's results on the device."""

    hidden: Tensor  # [tokens, hidden], in the batch's order
    logits: Tensor | None  # [tokens, vocab] float32 of a decode step, to be overwritten by the next
    greedy: _Captured | None  # the graph that can choose from those logits


@dataclass(frozen=True, slots=True)
class _Captured:
    shape: StepShape
    forward: torch.cuda.CUDAGraph
    choose: torch.cuda.CUDAGraph | None  # greedy choice, after a decode graph's logits
    inputs: Tensor
    hidden: Tensor  # [rows, hidden]
    logits: Tensor | None  # [rows, vocab] float32
    ids: Tensor | None  # [rows] int64


class CudaSteps:
    """Runs batches on one GPU. One stream, one caller."""

    def __init__(
        self,
        decoder: Decoder,
        rope: RopeTable,
        kv: Many[KVLayer],
        last_ids: Tensor,
        *,
        table_shape: tuple[int, int],
        max_tokens: int,
        vocabulary: int,
        scale: float,
        sizes: Many[int] = DECODE_BUCKETS,
    ) -> None:
        """`last_ids` [sequences] int64 is the runner's; ids from `vocabulary` up are padding; `sizes`: the rows of
        decode steps that get a graph.
        """
        self._decoder, self._rope, self._kv = decoder, rope, kv
        self._max_num_seqs, self._max_tokens = table_shape[0], max_tokens
        self._inputs = CudaInputs(
            kv[0],
            last_ids,
            table_shape=table_shape,
            max_tokens=max_tokens,
            num_heads=decoder.config.num_heads,
            scale=scale,
            sizes=sizes,
        )
        self._sizes = sizes
        self._ops = StepOps(decoder, rope, kv, self._inputs, last_ids, vocabulary)
        self._graphs: list[_Captured] = []  # the fewest rows first
        self._pool = torch.cuda.graph_pool_handle()
        self._capture_stream = torch.cuda.Stream()
        self._later = prepare_libraries(decoder, kv[0], max_tokens)

    def capture(self) -> None:
        """Captures every graph, the largest first, so that the smaller ones take the same memory."""
        shapes = buckets(self._max_num_seqs, self._max_tokens, self._sizes)
        self._graphs = [self._capture(shape) for shape in reversed(shapes)][::-1]

    def improve(self) -> bool:
        """One preparation of the libraries for steps without a graph; False when all are made."""
        return next(self._later, None) is not None

    def run(self, batch: Batch) -> Stepped:
        """Queues the batch's forward pass."""
        self._inputs.update_tables(batch)
        for graph in () if is_long(batch) else self._graphs:
            tiles = graph.shape.fit(batch)
            if tiles is not None:
                self._inputs.send(batch, graph.shape, tiles, graph.inputs)
                graph.forward.replay()
                return _unpadded(batch, graph)
        return Stepped(self._eager(batch), None, None)

    def choose(self, graph: _Captured, tokens: int) -> Tensor:
        """Queues the greedy choice from a decode graph's logits, which also becomes the slots' last ids: [tokens]."""
        assert graph.choose is not None
        assert graph.ids is not None
        graph.choose.replay()
        return graph.ids[:tokens]

    def _eager(self, batch: Batch) -> Tensor:
        library = library_span(batch)
        shape, tiles = unpadded_shape(batch, library)
        inputs = self._inputs.new(shape)
        self._inputs.send(batch, shape, tiles, inputs)
        token_ids, plan = self._inputs.plan(shape, inputs, library)
        lengths = plan.rope_rows
        if self._rope.is_dynamic:
            padded = np.ones(shape.rows, dtype=np.int64)
            padded[: len(batch.lengths)] = batch.lengths
            lengths = to_device(padded, self._inputs.device)
        rope, plan.rope_rows = self._rope.rows(plan.rope_rows, lengths)
        return self._decoder.forward(token_ids, self._kv, plan, rope)[: len(batch.token_ids)]

    def _capture(self, shape: StepShape) -> _Captured:
        inputs = self._inputs.new(shape)
        self._ops.rehearse(shape)  # loads our kernels; the libraries choose theirs
        torch.cuda.synchronize()
        forward = torch.cuda.CUDAGraph()
        with self._capturing(forward):
            hidden, logits = self._ops.forward(shape, inputs)
        if not shape.decodes:
            return _Captured(shape, forward, None, inputs, hidden, None, None)
        assert logits is not None
        choose = torch.cuda.CUDAGraph()
        with self._capturing(choose):
            ids = self._ops.greedy(inputs, logits)
        return _Captured(shape, forward, choose, inputs, hidden, logits, ids)

    @contextmanager
    def _capturing(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        """As `torch.cuda.graph`, without the garbage collection, which takes longer than the capture."""
        with torch.cuda.stream(self._capture_stream):
            graph.capture_begin(pool=self._pool)
            try:
                yield
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._capture_stream)


def _unpadded(batch: Batch, graph: _Captured) -> Stepped:
    tokens, decodes, shape = len(batch.token_ids), batch.num_decode_rows, graph.shape
    if not shape.chunk:
        logits = None if graph.logits is None else graph.logits[:tokens]
        return Stepped(graph.hidden[:tokens], logits, graph if graph.choose is not None else None)
    chunk = graph.hidden[shape.single : shape.single + tokens - decodes]
    if not decodes:
        return Stepped(chunk, None, None)
    return Stepped(torch.cat([graph.hidden[:decodes], chunk]), None, None)
