"""The linear factory of a GPU's quantised forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from firsttoken.kernels.linear import DenseLinear, Linear
from firsttoken.kernels.quant_forms import QuantForm
from firsttoken.kernels.quant_linear import QuantLinear, stack
from firsttoken.kernels.quant_round import group_of, round_weight
from firsttoken.model.weights import DenseLinears, RawWeight, widened


@dataclass(frozen=True, slots=True)
class QuantLinears:
    """Keeps quantised weights in their bits, and rounds the layers' others, and the head, where forms are given.

    What cannot be kept or rounded (parts of several forms, inputs that no group divides) is dense.
    """

    dtype: torch.dtype  # of activations
    device: torch.device
    rounded: QuantForm | None = None  # the layers' products
    group: int | None = None  # inputs a scale of those; None: the form's own
    rows: int = 1  # output rows a scale of those
    head: QuantForm | None = None
    widens: bool = False  # rounded weights become dense again: their numbers without their kernels

    def __call__(self, name: str, parts: Sequence[RawWeight], bias: Tensor | None = None) -> Linear:
        bias = None if bias is None else bias.to(self.device, self.dtype)
        if name == "lm_head":
            made = self._kept(parts)  # one that has few bits already stays as it is
            if made is None and self.head is not None:
                made = self._rounded(parts, self.head)
        elif self.rounded is None:
            made = self._kept(parts)
        else:
            made = self._rounded(parts, self.rounded, self.group, self.rows)
        if made is None:
            return DenseLinears(self.dtype, self.device)(name, parts, bias)
        if self.widens:
            return DenseLinear(made.dequantize().to(self.dtype), bias)
        return replace(made, bias=bias)

    def _kept(self, parts: Sequence[RawWeight]) -> QuantLinear | None:
        if any(part.form is None for part in parts):
            return None
        return stack([part.packed(self.device) for part in parts])

    def _rounded(
        self, parts: Sequence[RawWeight], form: QuantForm, group: int | None = None, rows: int = 1
    ) -> QuantLinear | None:
        if group_of(parts[0].shape[1], form) is None:
            return None
        floats = (widened(part, self.device).to(self.device) for part in parts)
        return stack([round_weight(each, form, group=group, rows=rows) for each in floats])
