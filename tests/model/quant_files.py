"""Quantised checkpoints written for tests, each as its own tools publish it, with the weights they stand for.

Nothing of the reader is used: words are put together bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.builders import write_checkpoint

Stored = dict[str, Tensor]
Layout = Callable[[Tensor], tuple[Stored, Tensor]]
"""A float weight -> its tensors by the last part of their names, and the float32 weight that they stand for."""

SCALE = torch.float16


@dataclass(frozen=True, slots=True)
class Published:
    """One published layout: what config.json says, and how a weight is stored."""

    config: dict[str, Any]
    store: Layout


def write_quantised(folder: Path, config: dict[str, Any], tensors: Stored, published: Published) -> Stored:
    """Writes the model with the layers' matrices quantised; returns the weights that a reader should see."""
    stored: Stored = {}
    seen: Stored = {}
    for name, tensor in tensors.items():
        if tensor.dim() == 2 and ".layers." in name:
            parts, seen[name] = published.store(tensor)
            module = name.removesuffix(".weight")
            stored |= {f"{module}.{part}": value.contiguous() for part, value in parts.items()}
        else:
            stored[name] = seen[name] = tensor
    write_checkpoint(folder, config | {"quantization_config": published.config}, stored)
    return seen


def words_along(values: Tensor, bits: int) -> Tensor:
    """Integers [rows, n] -> int32 [rows, n * bits / 32], the first value in the lowest bits."""
    per = 32 // bits
    total = torch.zeros(values.shape[0], -(-values.shape[1] // per), dtype=torch.int64)
    for place in range(per):
        column = values[:, place::per].long() << (bits * place)
        total[:, : column.shape[1]] += column
    return total.to(torch.int32)  # wraps into the sign


def integers(
    weight: Tensor, bits: int, group: int, *, points: bool, scale_type: torch.dtype = SCALE
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values [out, in] and zero points [out, groups] from 0 up, scales, and the float32 weight that they stand for."""
    out, count = weight.shape
    grouped = weight.view(out, count // group, group)
    top = 2**bits - 1
    if points:
        low, high = grouped.amin(2), grouped.amax(2)
        scale = ((high - low) / top).to(scale_type)
        zero = (-low / scale.float()).round().clamp(0, top)
    else:
        scale = (grouped.abs().amax(2) / (top // 2)).to(scale_type)
        zero = torch.full(scale.shape, float(2 ** (bits - 1)))
    values = ((grouped / scale.float()[..., None]).round() + zero[..., None]).clamp(0, top)
    seen = (values - zero[..., None]) * scale.float()[..., None]
    return values.view(out, count), zero, scale, seen.view(out, count)


def gptq(group: int, *, bits: int = 4, sym: bool = True, version: str = "gptq", order: bool = False) -> Published:
    """AutoGPTQ and GPTQModel: words down the inputs, zero points less one in the first format."""

    def store(weight: Tensor) -> tuple[Stored, Tensor]:
        share = group if group > 0 else weight.shape[1]
        values, zero, scale, seen = integers(weight, bits, share, points=not sym)
        written = (zero - float(version == "gptq")) % 2**bits
        return {
            "qweight": words_along(values, bits).T,
            "qzeros": words_along(written.T, bits),
            "scales": scale.T,
            "g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // share,
        }, seen

    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": sym, "desc_act": order}
    return Published(config | {"checkpoint_format": version}, store)


def awq(group: int) -> Published:
    """AutoAWQ's gemm: words along the outputs, in which columns lie 0 2 4 6 1 3 5 7."""
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def columns(values: Tensor) -> Tensor:
        lying = values.T.reshape(values.shape[1], -1, 8)[..., order]
        return words_along(lying.reshape(values.shape[1], -1), 4)

    def store(weight: Tensor) -> tuple[Stored, Tensor]:
        values, zero, scale, seen = integers(weight, 4, group, points=True)
        return {"qweight": columns(values), "qzeros": columns(zero), "scales": scale.T}, seen

    return Published(
        {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}, store
    )


def _compressed(layout: str, weights: dict[str, Any], store: Layout) -> Published:
    scheme = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    config = {"quant_method": "compressed-tensors", "format": layout, "config_groups": {"group_0": scheme}}
    return Published(config | {"ignore": ["lm_head"]}, store)


def pack_quantized(group: int, *, bits: int = 4, symmetric: bool = True) -> Published:
    """compressed-tensors' words along the inputs; zero points are packed along the outputs."""

    def store(weight: Tensor) -> tuple[Stored, Tensor]:
        values, zero, scale, seen = integers(weight, bits, group, points=not symmetric, scale_type=torch.bfloat16)
        parts = {"weight_packed": words_along(values, bits), "weight_scale": scale}
        parts["weight_shape"] = torch.tensor(weight.shape)
        if not symmetric:
            parts["weight_zero_point"] = words_along(zero.T, bits).T
        return parts, seen

    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": group}
    return _compressed("pack-quantized", weights, store)


def int_quantized() -> Published:
    """compressed-tensors' int8 with a scale for each row."""

    def store(weight: Tensor) -> tuple[Stored, Tensor]:
        values, _, scale, seen = integers(weight, 8, weight.shape[1], points=False, scale_type=torch.float32)
        return {"weight": (values - 128).to(torch.int8), "weight_scale": scale}, seen

    return _compressed("int-quantized", {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}, store)


def float_quantized(strategy: str) -> Published:
    """compressed-tensors' FP8: a scale for the tensor, each row, or each block of 128 x 128."""

    def store(weight: Tensor) -> tuple[Stored, Tensor]:
        parts, seen = fp8(weight, strategy)
        return parts | {"input_scale": torch.ones(1)}, seen

    weights: dict[str, Any] = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy}
    if strategy == "block":
        weights["block_structure"] = [128, 128]
    return _compressed("float-quantized", weights, store)


def official_fp8() -> Published:
    """The form of Qwen's own FP8 checkpoints."""

    def store(weight: Tensor) -> tuple[Stored, Tensor]:
        parts, seen = fp8(weight, "block")
        return {"weight": parts["weight"], "weight_scale_inv": parts["weight_scale"]}, seen

    config = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    return Published(config, store)


def static_fp8() -> Published:
    """FP8 with one scale a tensor, as older tools write it."""

    def store(weight: Tensor) -> tuple[Stored, Tensor]:
        parts, seen = fp8(weight, "tensor")
        return parts | {"weight_scale": parts["weight_scale"][0], "input_scale": torch.tensor(0.5)}, seen

    return Published({"quant_method": "fp8", "activation_scheme": "static"}, store)


def fp8(weight: Tensor, strategy: str) -> tuple[Stored, Tensor]:
    out, count = weight.shape
    rows, columns = {"tensor": (out, count), "channel": (1, count), "block": (128, 128)}[strategy]
    values, seen = torch.empty_like(weight, dtype=torch.float8_e4m3fn), torch.empty_like(weight)
    scale = torch.empty(-(-out // rows), -(-count // columns))
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            block = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
            scale[i, j] = weight[block].abs().max() / 448
            values[block] = (weight[block] / scale[i, j]).to(torch.float8_e4m3fn)
            seen[block] = values[block].float() * scale[i, j]
    return {"weight": values, "weight_scale": scale.view(-1) if strategy == "tensor" else scale}, seen
