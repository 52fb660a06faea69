"""Scales of an FP8 KV cache as checkpoints publish them: a stored number times its scale is the key or value.

Sources of the names: llm-compressor and compressed-tensors (`self_attn.k_scale`; before August 2024
`k_proj.output_scale`), vLLM's own modules (`attn.k_scale`), ModelOpt (`k_proj.k_scale`), and the earliest tools
(`kv_scale`, of both).
"""

from __future__ import annotations

from collections.abc import Callable, Container

import torch
from torch import Tensor

from firsttoken.errors import ModelError
from firsttoken.model.config import ModelConfig
from firsttoken.model.tensor_names import named

_OF_PROJECTION = "{0}_proj.output_scale"
_NAMES = ("{0}_scale", "attn.{0}_scale", "{0}_proj.{0}_scale", _OF_PROJECTION, "kv_scale")


def stored_kv_scales(
    names: Container[str], tensor: Callable[[str], Tensor], config: ModelConfig
) -> list[Tensor] | None:
    """[2, kv_heads] float32 a layer, of keys and of values, from a checkpoint's tensors; None where it has none.

    One number is that of all heads. Raises ModelError where only some are there, or one cannot be a scale.
    """
    # under a norm of its own a key is no longer what its projection gave, whose scale then says nothing of it
    forms = [form for form in _NAMES if form != _OF_PROJECTION or not config.qk_norm]
    found: list[str] = []
    missing: list[str] = []
    for i in range(config.num_layers):
        for kind in "kv":
            here = [f"model.layers.{i}.self_attn.{form.format(kind)}" for form in forms]
            there = next((name for name in here if name in names), None)
            (missing if there is None else found).append(there or here[0])
    if not found:
        return None
    if missing:
        raise ModelError(f"The checkpoint has scales for some of its keys and values only; it lacks {named(missing)}.")
    of_heads = [_heads(name, tensor(name), config.num_kv_heads) for name in found]
    return [torch.stack(pair) for pair in zip(of_heads[::2], of_heads[1::2], strict=True)]


def _heads(name: str, scale: Tensor, heads: int) -> Tensor:
    if not scale.is_floating_point() or scale.numel() not in (1, heads):
        raise ModelError(
            f"{name} is {str(scale.dtype).removeprefix('torch.')} {list(scale.shape)}; the scale of an FP8 KV cache is "
            f"one float, or one for each of {heads} heads."
        )
    values = scale.to(torch.float32).reshape(-1).expand(heads)
    if not bool(((values > 0) & values.isfinite()).all()):
        raise ModelError(f"{name} holds {values.tolist()}; a scale is a positive number.")
    return values
