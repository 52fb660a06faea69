"""Rounds float weights to 8 and 4 bits: what `--quantization` does at load."""

from __future__ import annotations

import torch
from torch import Tensor

from firsttoken.kernels.quant_forms import BITS, QuantForm
from firsttoken.kernels.quant_linear import QuantLinear, fits, pack

GROUPS = (128, 64, 32)  # inputs a scale of the integer forms: the largest that divides
_FP8_MAX = 448.0  # of E4M3
_SMALLEST = 2.0**-24  # a scale in float16
_SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8)  # of a group's range: cutting off its ends may cost less than coarser steps
_SLICE = 1024  # rows made float32 at a time, in each of the threads that load


def group_of(in_features: int, form: QuantForm) -> int | None:
    """Inputs a scale when weights of so many inputs are rounded; None where they cannot be."""
    if not fits(in_features, form):
        return None
    return in_features if form == "fp8" else next((group for group in GROUPS if in_features % group == 0), None)


def round_weight(weight: Tensor, form: QuantForm, *, group: int | None = None, rows: int = 1) -> QuantLinear:
    """A float weight [out, in] on any device: fp8 by row, int8 symmetric and int4 with zero points by groups.

    `group` inputs and, of fp8, `rows` output rows a scale; by default what `group_of` says.
    """
    group = group or group_of(weight.shape[1], form)
    assert group is not None
    step = _SLICE // rows * rows or rows
    parts = [_ROUND[form](some.to(torch.float32), group, rows) for some in weight.split(step)]
    data, scales, zeros = zip(*parts, strict=True)
    zero = torch.cat([each for each in zeros if each is not None]) if form == "int4" else None
    return QuantLinear(form, torch.cat(data), torch.cat(scales), zero, group, rows)


def _fp8(weight: Tensor, group: int, rows: int) -> tuple[Tensor, Tensor, None]:
    out, count = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -count % group, 0, -out % rows))
    blocks = padded.view(padded.shape[0] // rows, rows, -1, group)
    scale = blocks.abs().amax((1, 3)).clamp(min=1e-12) / _FP8_MAX
    values = (blocks / scale[:, None, :, None]).view(padded.shape)[:out, :count].to(torch.float8_e4m3fn)
    return pack(values.contiguous().view(torch.uint8), BITS["fp8"]), scale, None


def _int8(weight: Tensor, group: int, _rows: int) -> tuple[Tensor, Tensor, None]:
    grouped = weight.view(len(weight), -1, group)
    scale = (grouped.abs().amax(2) / 127).clamp(min=_SMALLEST).to(torch.float16)
    values = (grouped / scale[..., None].to(torch.float32)).round().clamp(-127, 127) + 128
    return pack(values.view(weight.shape).to(torch.uint8), BITS["int8"]), scale, None


def _int4(weight: Tensor, group: int, _rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """The range of each group is the one of a few that leaves the least squared error."""
    grouped = weight.view(len(weight), -1, group)
    low, high = grouped.amin(2).clamp(max=0), grouped.amax(2).clamp(min=0)
    best: tuple[Tensor, Tensor, Tensor] | None = None
    least = torch.full_like(low, float("inf"))
    for shrink in _SHRINKS:
        scale = ((high - low) * (shrink / 15)).clamp(min=_SMALLEST).to(torch.float16)
        wide = scale.to(torch.float32)
        zero = (-low * shrink / wide).round().clamp(0, 15)
        values = ((grouped / wide[..., None]).round() + zero[..., None]).clamp(0, 15)
        error = ((values - zero[..., None]) * wide[..., None] - grouped).square().sum(2)
        better = error < least
        least = torch.where(better, error, least)
        if best is None:
            best = values, scale, zero
        else:
            values = torch.where(better[..., None], values, best[0])
            best = values, torch.where(better, scale, best[1]), torch.where(better, zero, best[2])
    assert best is not None
    values, scale, zero = best
    return pack(values.view(weight.shape).to(torch.uint8), BITS["int4"]), scale, zero.to(torch.uint8)


_ROUND = {"fp8": _fp8, "int8": _int8, "int4": _int4}
