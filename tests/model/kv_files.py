"""Checkpoints with the scales of an FP8 KV cache, written for tests as their tools publish them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firsttoken.model.checkpoint import Checkpoint
from firsttoken.model.config import load_config
from tests.builders import Kind, tiny_config, tiny_tensors, write_checkpoint

SCHEME = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}
KV_ALONE: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "dense",
    "config_groups": {},
    "kv_cache_scheme": SCHEME,
}


def scales(shape: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """A key's and a value's scale for each of two layers: bfloat16, no powers of two, all different."""
    generator = torch.Generator().manual_seed(0)
    drawn = [(torch.rand(shape, generator=generator) * 0.02 + 0.005).to(torch.bfloat16) for _ in range(4)]
    return [(drawn[0], drawn[1]), (drawn[2], drawn[3])]


def write_with_kv(
    folder: Path,
    form: str,
    stored: list[tuple[Tensor, Tensor]],
    kind: Kind = "qwen3",
    config: dict[str, Any] = KV_ALONE,
) -> Checkpoint:
    """A tiny model with dense weights; `form` is the scales' name within self_attn, with {0} for k or v."""
    raw = tiny_config(kind, quantization_config=config)
    tensors = tiny_tensors(raw)
    for i, pair in enumerate(stored):
        for letter, scale in zip("kv", pair, strict=True):
            tensors[f"model.layers.{i}.self_attn.{form.format(letter)}"] = scale
    write_checkpoint(folder, raw, tensors)
    return Checkpoint(folder, load_config(folder))
