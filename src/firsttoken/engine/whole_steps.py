"""Decode steps of a model with made-up weights, from token ids to the greedy choice, timed by launches that change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from triton.errors import TritonError

from firsttoken.engine.cuda_inputs import CudaInputs
from firsttoken.engine.model_runner import make_kv_cache
from firsttoken.engine.step_ops import StepOps
from firsttoken.engine.step_shape import StepShape
from firsttoken.kernels.gpu import attends
from firsttoken.kernels.gpu.card import Timer
from firsttoken.kernels.gpu.launch import Product, Table
from firsttoken.kernels.gpu.launch_table import launching_by, merged
from firsttoken.kernels.quant_forms import QuantForm
from firsttoken.model.config import ModelConfig
from firsttoken.model.cost import kv_bytes_per_token
from firsttoken.model.made_up import random_decoder
from firsttoken.model.rope import RopeTable

CONTEXT = 512  # tokens that each row attends to
_BLOCK = 16
_CALLS = 8  # steps of a reading: some ten milliseconds, so that its ends do not count


class WholeSteps:
    """As `step_search.Steps`. Takes the memory of all weights and of `most_rows` short contexts."""

    def __init__(
        self,
        config: ModelConfig,
        form: QuantForm | None,
        table: Table,
        *,
        most_rows: int,
        device: torch.device,
        dtype: torch.dtype,
        timer: Timer,
    ) -> None:
        """`form` is what weights are rounded to; `table` launches what is not said."""
        self._ops = made_up_steps(config, form, most_rows=most_rows, context=CONTEXT, device=device, dtype=dtype)
        self._table, self._timer = table, timer
        self._sent: dict[int, Tensor] = {}  # by rows: the graphs read it

    def read_bytes(self, rows: int) -> int:
        """As `step_search.Steps`."""
        decoder, cache = self._ops.decoder, self._ops.kv[0]
        return decoder.weight_bytes + rows * CONTEXT * kv_bytes_per_token(decoder.config, cache.k.element_size())

    @torch.inference_mode()
    def reader(self, rows: int, products: Sequence[Product]) -> Callable[[], float] | None:
        """As `step_search.Steps`."""
        ops, shape = self._ops, StepShape(rows, True)
        if not attends(ops.decoder.config.head_dim):
            return None
        if rows not in self._sent:
            self._sent[rows] = made_up_rows(ops, [CONTEXT] * rows)
        sent = self._sent[rows]

        def step(_: int) -> None:
            logits = ops.forward(shape, sent)[1]
            assert logits is not None
            ops.greedy(sent, logits)

        with launching_by(replace(self._table, products=merged(self._table.products, products))):
            try:
                return self._timer(step, _CALLS)
            except TritonError:  # more shared memory or registers than the card has
                return None


def made_up_steps(
    config: ModelConfig,
    form: QuantForm | None,
    *,
    most_rows: int,
    context: int,
    device: torch.device,
    dtype: torch.dtype,
) -> StepOps:
    """The steps of a model with random weights, and a cache of random keys and values for so many rows and tokens."""
    blocks = -(-context // _BLOCK)
    last_ids = torch.zeros(most_rows, dtype=torch.int64, device=device)
    kv = make_kv_cache(config, most_rows * blocks, _BLOCK, dtype, device)
    for layer in () if device.type == "meta" else kv:  # zeros would cost the card less power
        layer.k.normal_()
        layer.v.normal_()
    inputs = CudaInputs(
        kv[0],
        last_ids,
        table_shape=(most_rows, blocks),
        max_tokens=most_rows,
        num_heads=config.num_heads,
        scale=1.0 / math.sqrt(config.head_dim),
    )
    every = torch.arange(most_rows * blocks, dtype=torch.int32)
    inputs.tables.copy_(every.view(most_rows, blocks))
    decoder = random_decoder(config, dtype, device, form, layers=config.num_layers)
    return StepOps(decoder, RopeTable(config, context, device), kv, inputs, last_ids, config.vocab_size)


def made_up_rows(ops: StepOps, contexts: Sequence[int]) -> Tensor:
    """What the host would send of decode rows with so many tokens each, the new one included."""
    sent = ops.inputs.new(StepShape(len(contexts), True))
    ids, slots, lengths = sent.view(3, len(contexts))
    ids.random_(ops.vocabulary)
    slots.copy_(torch.arange(len(contexts)))
    lengths.copy_(torch.tensor(contexts))
    return sent
