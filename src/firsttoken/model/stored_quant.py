"""Quantised weights as published checkpoints store them, and how they become the layout that the kernels read.

Sources of the layouts: transformers' FP8 integration (weight_scale_inv), AutoGPTQ and GPTQModel (qweight by input, zero
points less one), AutoAWQ (gemm: qweight by output, columns interleaved), compressed-tensors (pack_to_int32).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from firsttoken.errors import ModelError
from firsttoken.kernels.quant_forms import MIDDLE, QuantForm
from firsttoken.kernels.quant_linear import QuantLinear, fits, pack
from firsttoken.model.quantization import Layout, Quantization

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where in a word columns 0, 1, … lie
_FLOATS = ("F32", "BF16", "F16", "F8_E8M0")
_UNUSED = (  # of activations, known, or of the KV cache, whose scales `stored_kv_scales` reads by their whole names
    *("input_scale", "output_scale", "q_scale", "prob_scale", "weight_shape"),
    *("k_scale", "v_scale", "kv_scale", "k_zero_point", "v_zero_point", "q_zero_point"),
)

View = tuple[tuple[int, ...], str]
"""A tensor's shape and type, as safetensors names it."""


@dataclass(frozen=True, slots=True)
class StoredQuant:
    """One quantised weight's tensors, by the last part of their names."""

    quantization: Quantization
    shape: tuple[int, ...]  # [out, in]
    tensors: Mapping[str, Tensor]

    def on(self, device: torch.device) -> QuantLinear:
        """The weight on a device, without a bias: the bytes travel as they are and are put in order there."""
        tensors = {name: tensor.to(device) for name, tensor in self.tensors.items()}
        return _READERS[self.quantization.layout](self.quantization, self.shape, tensors)


def module_tensors(names: Mapping[str, View], module: str, quantization: Quantization) -> dict[str, View] | None:
    """What is stored of a quantised module ("model.layers.0.mlp.up_proj"); None where it is not quantised."""
    here = {part: names[f"{module}.{part}"] for part in _PARTS[quantization.layout] if f"{module}.{part}" in names}
    return here if any(marker in here for marker in _MARKERS[quantization.layout]) else None


def is_unused(name: str) -> bool:
    """Whether a tensor beside the weights is none that the products need."""
    return name.rpartition(".")[2] in _UNUSED


def check_stored(module: str, quantization: Quantization, shape: tuple[int, ...], found: Mapping[str, View]) -> None:
    """Raises ModelError, in one sentence, where what is stored is not a weight [out, in] of this quantisation."""
    q, (out, fan_in) = quantization, shape
    group = q.group or fan_in
    if not fits(fan_in, q.form):
        raise ModelError(f"{module} has {fan_in} inputs, which the words of {q.form} weights do not divide.")
    per = 32 // q.bits
    groups = -(-fan_in // group)
    wanted: dict[str, list[tuple[int, ...]]]
    if q.layout == "plain":
        grid = (-(-out // q.rows), groups)
        scales: list[tuple[int, ...]] = [grid] if q.group else [(), (1,), (1, 1), (out,), (out, 1)]
        wanted = dict.fromkeys(("weight_scale", "weight_scale_inv", "weight_zero_point"), scales)
        wanted["weight"] = [shape]
    elif q.layout == "packed":
        points = (-(-out // per), groups)
        wanted = {"weight_packed": [(out, fan_in // per)], "weight_scale": [(out, groups)]}
        wanted |= {"weight_zero_point": [points]}
    else:
        down = q.layout != "awq"
        words = (fan_in // per, out) if down else (fan_in, out // per)
        wanted = {"qweight": [words], "qzeros": [(groups, -(-out // per))], "scales": [(groups, out)]}
        wanted |= {"g_idx": [(fan_in,)]}
    if fan_in % group and q.rows == 1:
        raise ModelError(f"{module} has {fan_in} inputs, which its groups of {group} do not divide.")
    if "weight_g_idx" in found:
        raise ModelError(_REORDERED)
    needed = set(wanted) - {"weight_scale", "weight_scale_inv", "weight_zero_point", "g_idx"}
    lacking = sorted(needed - set(found))
    if q.layout == "packed" and "weight_scale" not in found:
        lacking.append("weight_scale")
    if q.points and q.layout in ("plain", "packed") and "weight_zero_point" not in found:
        lacking.append("weight_zero_point")
    if lacking:
        raise ModelError(f"{module} lacks {', '.join(lacking)}, which its quantization_config asks for.")
    for part, (found_shape, dtype) in found.items():
        if found_shape not in wanted.get(part, [found_shape]):
            asked = list(wanted[part][-1])
            raise ModelError(f"{module}.{part} has the shape {list(found_shape)}, but config.json asks for {asked}.")
        if dtype not in _types(q, part):
            raise ModelError(f"{module}.{part} is {dtype}; its quantization_config asks for {_types(q, part)[0]}.")


def check_order(module: str, q: Quantization, groups: Tensor) -> None:
    """Raises ModelError where the inputs' groups [in] are not one after the other (GPTQ's `desc_act`)."""
    expected = torch.arange(len(groups), dtype=groups.dtype) // (q.group or len(groups))
    if not torch.equal(groups, expected):
        raise ModelError(f"{module}: {_REORDERED}")


_REORDERED = (
    "Groups in another order than the inputs' (desc_act, actorder by group) are not supported; use a version made "
    "without, or an AWQ or FP8 one."
)
_PARTS: dict[Layout, tuple[str, ...]] = {
    "plain": ("weight", "weight_scale", "weight_scale_inv", "weight_zero_point"),
    "packed": ("weight_packed", "weight_scale", "weight_zero_point", "weight_g_idx"),
    "gptq": ("qweight", "qzeros", "scales", "g_idx"),
    "gptq_v2": ("qweight", "qzeros", "scales", "g_idx"),
    "awq": ("qweight", "qzeros", "scales"),
}
_MARKERS: dict[Layout, tuple[str, ...]] = {
    "plain": ("weight_scale", "weight_scale_inv"),
    "packed": ("weight_packed",),
    "gptq": ("qweight",),
    "gptq_v2": ("qweight",),
    "awq": ("qweight",),
}


def _types(q: Quantization, part: str) -> tuple[str, ...]:
    if part == "weight":
        return ("F8_E4M3",) if q.form == "fp8" else ("I8",)
    if part in ("weight_scale", "weight_scale_inv", "scales"):
        return _FLOATS
    return ("I8",) if part == "weight_zero_point" and q.layout == "plain" else ("I32",)


def _plain(q: Quantization, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> QuantLinear:
    scale = tensors["weight_scale_inv"] if "weight_scale_inv" in tensors else tensors["weight_scale"]
    scale, points = scale.to(torch.float32), tensors.get("weight_zero_point")
    if not q.group:  # of the tensor, or of each row
        scale = scale.reshape(-1, 1).expand(shape[0], 1).contiguous()
        points = None if points is None else points.reshape(-1, 1).expand(shape[0], 1)
    values = tensors["weight"].view(torch.uint8)
    if q.form == "int8":
        values = values ^ 128  # from the two's complement to 128 above it
    zero = None if points is None or q.form == "fp8" else _none_in_the_middle(points.to(torch.int16) + 128, "int8")
    return QuantLinear(q.form, pack(values, 8), scale, zero, q.group or shape[1], q.rows)


def _packed(q: Quantization, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> QuantLinear:
    values = _along_rows(tensors["weight_packed"], q.bits)
    points = tensors.get("weight_zero_point")
    zero = None
    if points is not None:  # packed along the output rows
        zero = _none_in_the_middle(_along_rows(points.T.contiguous(), q.bits).T[: shape[0]].contiguous(), q.form)
    return QuantLinear(q.form, pack(values, q.bits), tensors["weight_scale"].contiguous(), zero, q.group or shape[1])


def _gptq(q: Quantization, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> QuantLinear:
    values = _along_rows(tensors["qweight"].T.contiguous(), q.bits)  # [out, in]
    points = _along_rows(tensors["qzeros"], q.bits).T[: shape[0]].to(torch.int16)  # [out, groups]
    if q.layout == "gptq":
        points = (points + 1) & (255 if q.bits == 8 else 15)  # the first format stores them less one, and wraps
    zero = _none_in_the_middle(points, q.form)
    return QuantLinear(q.form, pack(values, q.bits), tensors["scales"].T.contiguous(), zero, q.group or shape[1])


def _awq(q: Quantization, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> QuantLinear:
    def columns(words: Tensor) -> Tensor:
        natural = _along_rows(words, 4).view(len(words), -1, 8)[..., list(_AWQ_ORDER)]
        return natural.reshape(len(words), -1).T.contiguous()

    zero = _none_in_the_middle(columns(tensors["qzeros"]), "int4")
    return QuantLinear(
        "int4", pack(columns(tensors["qweight"]), 4), tensors["scales"].T.contiguous(), zero, q.group or shape[1]
    )


def _along_rows(words: Tensor, bits: int) -> Tensor:
    """int32 [rows, n] -> uint8 [rows, n * 32 / bits], lowest bits first."""
    data = words.contiguous().view(torch.uint8)
    if bits == 8:
        return data
    return torch.stack([data & 15, data >> 4], dim=-1).view(len(words), -1)


def _none_in_the_middle(points: Tensor, form: QuantForm) -> Tensor | None:
    """Integer points as uint8; None where all are in the middle, which needs no bytes."""
    if bool((points == MIDDLE[form]).all()):
        return None
    return points.to(torch.uint8).contiguous()


_READERS: dict[Layout, Callable[[Quantization, tuple[int, ...], Mapping[str, Tensor]], QuantLinear]] = {
    "plain": _plain,
    "packed": _packed,
    "gptq": _gptq,
    "gptq_v2": _gptq,
    "awq": _awq,
}
