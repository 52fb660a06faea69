"""One product with made-up operands: its calls, its result, and how far that is from the reference in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from firsttoken.kernels import reference
from firsttoken.kernels.gpu import ops
from firsttoken.kernels.gpu.candidates import Job
from firsttoken.kernels.gpu.launch import DENSE, Product, group_of
from firsttoken.kernels.linear import DenseLinear, GpuLinear, Norm
from firsttoken.kernels.quant_forms import BITS, QUANT_FORMS
from firsttoken.kernels.quant_linear import QuantLinear

_EPS = 1e-6
_SLICE = 8192  # output features that the reference multiplies at once: a head in float64 would take gigabytes


@dataclass(frozen=True, slots=True)
class Operands:
    """What a product is given; `weights` are several alike, so that none is in the cache when its turn comes."""

    job: Job
    x: Tensor  # [rows, k]
    norm: Norm
    weights: Sequence[GpuLinear]  # each [n, k], or [2 n, k]: gate rows, then up rows
    residual: Tensor  # [rows, n]

    def run(self, launch: Product, index: int = 0) -> Tensor:
        """The product with one of the weights: [rows, n]. A library's linear_add writes into the residual.

        On the meta device it compiles what it would run.
        """
        job, weight = self.job, self.weights[index % len(self.weights)]
        if job.op == "linear_add":
            return ops.linear_add(self.x, weight, self.residual, launch=launch)
        if job.op == "norm_linear_swiglu":
            return ops.norm_linear_swiglu(self.x, self.norm, weight, launch=launch)
        return ops.norm_linear(self.x, self.norm, weight, self._out_dtype, launch=launch)

    def error(self, launch: Product) -> float:
        """Relative error of the first weight's product; infinite where a value is no number."""
        kept = self.residual.clone()
        actual = self.run(launch).double()
        self.residual.copy_(kept)
        expected = self._expected()
        error = float((actual - expected).norm() / expected.norm())
        return error if error == error else float("inf")

    def with_weights(self, weights: Sequence[GpuLinear]) -> Operands:
        """The same with others of the same shape."""
        return replace(self, weights=weights)

    @property
    def _out_dtype(self) -> torch.dtype:
        return torch.float32 if self.job.float_out else self.x.dtype

    def _expected(self) -> Tensor:
        """The reference in float64, a slice of the output features at a time: [rows, n]."""
        x, norm = self.x.double(), Norm(self.norm.weight.double(), self.norm.eps, self.norm.folded)
        parts = []
        for start in range(0, self.job.n, _SLICE):
            end = min(start + _SLICE, self.job.n)
            if self.job.op == "norm_linear_swiglu":
                parts.append(reference.norm_linear_swiglu(x, norm, self._slice(start, end, pairs=True)))
            elif self.job.op == "norm_linear":
                parts.append(reference.norm_linear(x, norm, self._slice(start, end)))
            else:
                parts.append(reference.linear_add(x, self._slice(start, end), self.residual[:, start:end].double()))
        return torch.cat(parts, dim=1)

    def _slice(self, start: int, end: int, *, pairs: bool = False) -> DenseLinear:
        n, weight = self.job.n, self.weights[0]

        def cut(first: int, end: int) -> DenseLinear:
            bias = None if weight.bias is None else weight.bias[first:end].double()
            part = weight.weight[first:end] if isinstance(weight, DenseLinear) else weight.widened(first, end)
            return DenseLinear(part.double(), bias)

        gate = cut(start, end)
        if not pairs:
            return gate
        up = cut(n + start, n + end)
        bias = None if gate.bias is None or up.bias is None else torch.cat([gate.bias, up.bias])
        return DenseLinear(torch.cat([gate.weight, up.weight]), bias)


def operands(job: Job, device: torch.device, dtype: torch.dtype, copies: int = 1) -> Operands:
    """Random operands; zeros would cost the card less power, and so flatter it. Norms are as a decoder's."""
    return Operands(
        job,
        x=_normal(job.rows, job.k, dtype=dtype, device=device),
        norm=Norm(
            torch.ones(job.k, dtype=dtype, device=device), _EPS, folded=job.weight == DENSE and not job.float_out
        ),
        weights=[_weight(job, device, dtype) for _ in range(copies)],
        residual=_normal(job.rows, job.n, dtype=dtype, device=device),
    )


def _normal(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Random numbers; on the meta device none, for which torch would import half of itself, for seconds."""
    made = torch.empty(shape, dtype=dtype, device=device)
    return made if made.is_meta else made.normal_()


def _weight(job: Job, device: torch.device, dtype: torch.dtype) -> GpuLinear:
    bias = _normal(job.weight_rows, dtype=dtype, device=device) if job.bias else None
    if job.weight != DENSE:
        return _quantised(job, device, bias)
    weight = _normal(job.weight_rows, job.k, dtype=dtype, device=device)
    return DenseLinear(weight if weight.is_meta else weight.mul_(job.k**-0.5), bias)


def _quantised(job: Job, device: torch.device, bias: Tensor | None) -> QuantLinear:
    """Random values of every code, with scales that make a product's results about one."""
    name, grouping, *zero = job.weight.split("-")
    form = QUANT_FORMS[name]
    group, rows = group_of(job.weight, job.k), int(grouping.split("x")[1]) if "x" in grouping else 1
    data = torch.empty(job.weight_rows, job.k * BITS[form] // 8, dtype=torch.uint8, device=device)
    shape = (-(-job.weight_rows // rows), -(-job.k // group))
    scale = torch.empty(shape, dtype=torch.float32 if form == "fp8" else torch.float16, device=device)
    points: Tensor | None = None
    if zero:
        points = torch.empty(shape, dtype=torch.uint8 if zero == ["points"] else torch.float16, device=device)
    if not data.is_meta:
        data.random_(256)
        if form == "fp8":
            data.masked_fill_((data & 0x7F) == 0x7F, 0)  # those two are no numbers
        spread = {"fp8": 128.0, "int8": 74.0, "int4": 4.6}[form]  # of the values
        scale.uniform_(0.5, 1.5).mul_(job.k**-0.5 / spread)
        if points is not None and zero == ["points"]:
            points.random_(1 << BITS[form])
        elif points is not None:
            points.normal_().mul_(job.k**-0.5)
    return QuantLinear(form, data, scale, points, group, rows, bias)
