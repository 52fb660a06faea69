"""What a step of a padded shape queues on a GPU: the forward pass, and after decode rows the greedy choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import triton
from torch import Tensor

from firsttoken.engine.cuda_inputs import CudaInputs
from firsttoken.engine.step_shape import StepShape
from firsttoken.kernels.gpu.argmax import argmax_merge_kernel, argmax_slices_kernel
from firsttoken.kernels.gpu.call import dependent, overlap, run_kernel
from firsttoken.kernels.gpu.launch import DENSE
from firsttoken.kernels.plan import KVLayer
from firsttoken.kernels.quant_linear import QuantLinear
from firsttoken.model.decoder import Decoder, DecoderLayer
from firsttoken.model.rope import RopeTable

_SLICE = 2048  # ids an argmax program looks at


@dataclass(frozen=True, slots=True)
class StepOps:
    """A model with its cache on one device; `last_ids` [sequences] int64; ids from `vocabulary` up are padding."""

    decoder: Decoder
    rope: RopeTable
    kv: Sequence[KVLayer]
    inputs: CudaInputs
    last_ids: Tensor
    vocabulary: int

    def rehearse(self, shape: StepShape) -> None:
        """All that a step of this shape launches, of one layer of each kind: the others launch the same."""
        layers = self.decoder.layers
        few = first_of_each_kind(layers)
        decoder = replace(self.decoder, layers=tuple(layers[i] for i in few))
        sent = self.inputs.new(shape)
        _, logits = replace(self, decoder=decoder, kv=[self.kv[i] for i in few]).forward(shape, sent)
        if logits is not None:
            self.greedy(sent, logits)

    def forward(self, shape: StepShape, sent: Tensor) -> tuple[Tensor, Tensor | None]:
        """Hidden states [rows, hidden] of what the host `sent`, and of decode rows their logits [rows, vocab]."""
        token_ids, plan = self.inputs.plan(shape, sent)
        rope, _ = self.rope.rows(plan.rope_rows, plan.rope_rows)
        hidden = self.decoder.forward(token_ids, self.kv, plan, rope)
        return hidden, self.decoder.logits(hidden) if shape.decodes else None

    def greedy(self, sent: Tensor, logits: Tensor) -> Tensor:
        """The likeliest id of each row, [rows] int64, which also becomes its slot's last id."""
        rows, width = logits.shape
        slices = triton.cdiv(self.vocabulary, _SLICE)
        values = torch.empty(rows, slices, dtype=torch.float32, device=logits.device)
        best = torch.empty(rows, slices, dtype=torch.int32, device=logits.device)
        ids = torch.empty(rows, dtype=torch.int64, device=logits.device)
        options = {"PDL": dependent(logits), **overlap(dependent(logits))}
        run_kernel(
            argmax_slices_kernel,
            (slices, rows),
            logits,
            values,
            best,
            self.vocabulary,
            V=width,
            BV=_SLICE,
            **options,
        )
        run_kernel(
            argmax_merge_kernel,
            (rows,),
            values,
            best,
            ids,
            sent,
            self.last_ids,
            slices,
            rows,
            BS=triton.next_power_of_2(slices),
            **options,
        )
        return ids


def first_of_each_kind(layers: Sequence[DecoderLayer]) -> list[int]:
    """The layers that stand for all: many GGUF files hold some layers' weights in more bits than the others'."""
    first: dict[tuple[str, ...], int] = {}
    for index, layer in enumerate(layers):
        products = (layer.qkv, layer.o, layer.gate_up, layer.down)
        first.setdefault(tuple(p.kind if isinstance(p, QuantLinear) else DENSE for p in products), index)
    return list(first.values())
