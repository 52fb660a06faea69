"""Which kernels a server will launch, found without a card: its steps run on the meta device, a layer of each kind."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from firsttoken.engine.device import WeightForm
from firsttoken.engine.step_shape import DECODE_BUCKETS, StepShape, buckets
from firsttoken.kernels.gpu import attends, has_triton
from firsttoken.kernels.gpu.card_facts import CardFacts
from firsttoken.kernels.plan import LONG_CHUNK_TILE, KVLayer
from firsttoken.kernels.quant_forms import QUANT_FORMS
from firsttoken.model.config import ModelConfig
from firsttoken.model.rope import RopeTable

if TYPE_CHECKING:
    from firsttoken.kernels.gpu.kernel_list import Wanted

_META = torch.device("meta")
_LONG_TILES = 64  # of a chunk in the form for long ones; any number does


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What of a server's settings decides which kernels it runs."""

    dtype: torch.dtype  # of activations
    weights: WeightForm
    fp8_cache: bool
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    graphs: tuple[int, ...] = DECODE_BUCKETS  # rows of decode steps
    vocabulary: int  # ids that may be sampled


def kernels_of(config: ModelConfig, settings: Settings, card: CardFacts) -> Collection[Wanted]:
    """All of ours that its start launches; nothing where torch's own kernels run."""
    if settings.dtype.itemsize != 2 or not has_triton() or not attends(config.head_dim):
        return ()
    from firsttoken.kernels.gpu.kernel_list import listed  # imports Triton

    with listed(card) as found:
        rehearse_start(config, settings)
    return found


@torch.inference_mode()
def rehearse_start(config: ModelConfig, settings: Settings) -> None:
    """Every step of a start, on the meta device: of the card that is imagined there."""
    from firsttoken.engine.cuda_inputs import CudaInputs  # these import Triton
    from firsttoken.engine.step_ops import StepOps
    from firsttoken.kernels.gpu.draw import draw_top
    from firsttoken.model.made_up import hollow_decoder

    if settings.weights == "dense":
        config = replace(config, quantization=None, kept_kinds=(), kept_head=None)
    shapes = buckets(settings.max_num_seqs, settings.max_num_batched_tokens, settings.graphs or DECODE_BUCKETS)
    shapes.append(StepShape(0, True, _LONG_TILES * LONG_CHUNK_TILE, _LONG_TILES, LONG_CHUNK_TILE))
    cache = _hollow_cache(config, settings)
    last_ids = torch.empty(settings.max_num_seqs, dtype=torch.int64, device=_META)
    inputs = CudaInputs(
        cache,
        last_ids,
        table_shape=(settings.max_num_seqs, 1),
        max_tokens=settings.max_num_batched_tokens,
        num_heads=config.num_heads,
        scale=1.0 / math.sqrt(config.head_dim),
    )
    decoder = hollow_decoder(config, settings.dtype, QUANT_FORMS.get(settings.weights))
    # Real numbers where they do not depend on positions: to make hollow ones torch would import half of itself
    rope = RopeTable(config, 1, _META if config.rope_scaling["rope_type"] == "dynamic" else "cpu")
    ops = StepOps(decoder, rope, [cache] * len(decoder.layers), inputs, last_ids, settings.vocabulary)
    for shape in shapes:
        ops.rehearse(shape)
    logits = torch.empty(1, config.vocab_size, device=_META)
    draw_top(logits[:, : settings.vocabulary], torch.empty(5, 1, dtype=torch.float64, device=_META))


def _hollow_cache(config: ModelConfig, settings: Settings) -> KVLayer:
    shape = (1, config.num_kv_heads, settings.block_size, config.head_dim)
    dtype = torch.uint8 if settings.fp8_cache else settings.dtype
    scales = torch.empty(2, config.num_kv_heads, device=_META) if settings.fp8_cache else None
    return KVLayer(torch.empty(shape, dtype=dtype, device=_META), torch.empty(shape, dtype=dtype, device=_META), scales)
