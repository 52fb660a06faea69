"""Scales of an FP8 KV cache, one a layer, head and kind: the checkpoint's, or measured once when the model is loaded.

E4M3 has the same relative error over fifteen powers of two, so that a scale needs to be right within a few of them, and
room above what was seen costs nothing (ADR 12).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch
from torch import Tensor

from firsttoken.engine.batch import BatchBuilder, to_device
from firsttoken.engine.sequence import Sequence
from firsttoken.engine.step_plan import PlanRow, StepPlan
from firsttoken.kernels.e4m3 import LARGEST
from firsttoken.kernels.plan import KVLayer
from firsttoken.model.decoder import Decoder
from firsttoken.model.rope import RopeTable
from firsttoken.types import GenerateRequest, SamplingParams

TOKENS = 256  # made-up ones, from the whole vocabulary
HEADROOM = 16.0  # times the largest number seen; real text gave up to 2.4 times what made-up tokens do
_BLOCK = 16


@dataclass(frozen=True, slots=True)
class KVScales:
    """What a stored number is multiplied with."""

    of_layers: list[Tensor]  # [2, kv_heads] float32 each, of keys and of values
    origin: str  # whose they are, for the start-up summary


def choose_kv_scales(stored: list[Tensor] | None, decoder: Decoder, token_id_limit: int) -> KVScales:
    """The checkpoint's own scales; measured ones where it has none or all are 1.0, never calibrated."""
    unfilled = stored is not None and all(bool((layer == 1).all()) for layer in stored)
    if stored is None or unfilled:
        measured = measure_kv_scales(decoder, token_id_limit, decoder.config.bos_token_id)
        why = ", as the checkpoint's are all 1.0" if unfilled else ""
        return KVScales(measured, f"a scale a head, measured at load{why}")
    alike = all(bool((layer == layer[:, :1]).all()) for layer in stored)
    of_layers = [layer.to(decoder.device) for layer in stored]
    return KVScales(of_layers, f"the checkpoint's own scales, one a {'layer' if alike else 'head'}")


@torch.inference_mode()
def measure_kv_scales(decoder: Decoder, token_id_limit: int, bos_token_id: int | None) -> list[Tensor]:
    """[2, kv_heads] float32 a layer, of keys and of values; powers of two, the same at each start."""
    config, device = decoder.config, decoder.device
    count = min(TOKENS, config.context_length)
    draw = random.Random(0)
    ids = [draw.randrange(token_id_limit) for _ in range(count)]
    if bos_token_id is not None:
        ids[0] = bos_token_id  # the first token's keys are often the largest of all
    request = GenerateRequest(request_id="scales", prompt_token_ids=ids, sampling=SamplingParams(max_tokens=0))
    seq = Sequence(request, 0, 0, ids, count, count, slot=0)
    seq.block_ids = list(range(-(-count // _BLOCK)))
    builder = BatchBuilder(max_num_seqs=1, max_model_len=count, block_size=_BLOCK)
    batch = builder.build(StepPlan(-1, (PlanRow(seq, 0, 0, count, samples=False, fresh=True),)))
    shape = (len(seq.block_ids), config.num_kv_heads, _BLOCK, config.head_dim)
    cache = [
        KVLayer(*(torch.zeros(shape, dtype=decoder.dtype, device=device) for _ in range(2)))
        for _ in range(config.num_layers)
    ]
    rope, rows = RopeTable(config, count, device).rows(
        to_device(batch.positions, device), to_device(batch.lengths, device)
    )
    plan = batch.attention_plan(rows, config.num_heads, 1.0 / math.sqrt(config.head_dim))
    decoder.forward(to_device(batch.token_ids, device), cache, plan, rope)
    return [torch.stack([_scale(layer.k), _scale(layer.v)]) for layer in cache]


def _scale(numbers: Tensor) -> Tensor:
    """[blocks, kv_heads, block_size, head_dim] -> [kv_heads]."""
    largest = numbers.abs().amax(dim=(0, 2, 3)).to(torch.float32).clamp(min=2.0**-20)
    return torch.exp2(torch.ceil(torch.log2(largest * (HEADROOM / LARGEST))))
