"""Quantised weights times many rows: FP8 by the library where the card multiplies FP8, all others widened first."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from firsttoken.kernels.gpu.call import run_kernel
from firsttoken.kernels.gpu.card_facts import facts_of
from firsttoken.kernels.gpu.packed import FORMS
from firsttoken.kernels.gpu.widen import fp8_rows_kernel, widen_kernel
from firsttoken.kernels.linear import DenseLinear, Norm
from firsttoken.kernels.quant_linear import QuantLinear

_FP8_MAX = 448.0  # of E4M3
_WIDEN_ROWS, _WIDEN_BYTES = 16, 256  # of the weight, a program


def form_constants(weight: QuantLinear) -> dict[str, int]:
    """The constants by which a kernel reads this weight."""
    zero = 0 if weight.zero is None else 2 if weight.zero.is_floating_point() else 1
    return {"FORM": FORMS[weight.form], "GROUP": weight.group, "ROWS": weight.rows, "ZERO": zero}


def widened(weight: DenseLinear | QuantLinear, dtype: torch.dtype) -> DenseLinear:
    """The weight dense in `dtype`: itself where it is."""
    if isinstance(weight, DenseLinear):
        return weight
    n, k = weight.out_features, weight.in_features
    out = torch.empty(n, k, dtype=dtype, device=weight.data.device)
    launched = (triton.cdiv(n, _WIDEN_ROWS), triton.cdiv(weight.data.shape[1], _WIDEN_BYTES))
    zero = weight.scale if weight.zero is None else weight.zero
    constants = form_constants(weight) | {"K": k, "BN": _WIDEN_ROWS, "COUNT": _WIDEN_BYTES}
    run_kernel(widen_kernel, launched, weight.data, weight.scale, zero, out, n, **constants)
    return DenseLinear(out, weight.bias)


def has_fp8_product(x: Tensor, weight: DenseLinear | QuantLinear) -> bool:
    """Whether `fp8_product` takes these: FP8 by row (blocks have no product on all of those cards), in bfloat16."""
    card = facts_of(x.device)
    return (
        isinstance(weight, QuantLinear)
        and weight.form == "fp8"
        and weight.rows == 1
        and weight.group >= weight.in_features
        and weight.out_features % 16 == 0
        and x.dtype == torch.bfloat16
        and card is not None
        and card.has_fp8
    )


def fp8_product(x: Tensor, weight: QuantLinear, norm: Norm | None = None) -> Tensor:
    """x (normalised first) rounded to FP8 by row, times an FP8 weight: [rows, in] -> [rows, out] bfloat16."""
    m, k = x.shape
    rows = torch.empty(m, k, dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty(m, 1, dtype=torch.float32, device=x.device)
    options = {"K": k, "BK": triton.next_power_of_2(k), "NORM": norm is not None, "MAX": _FP8_MAX, "num_warps": 8}
    given, eps = (x, 0.0) if norm is None else (norm.weight, norm.eps)
    run_kernel(fp8_rows_kernel, (m,), x, given, rows, scales, eps, **options)
    if x.is_meta:  # to ask torch for a shape would import half of it, for seconds
        return torch.empty(m, weight.out_features, dtype=torch.bfloat16, device=x.device)
    columns = weight.data.view(torch.float8_e4m3fn).t()
    by_column = weight.scale.to(torch.float32).view(1, -1)
    out: Tensor = torch._scaled_mm(rows, columns, scale_a=scales, scale_b=by_column, out_dtype=torch.bfloat16)
    return out if weight.bias is None else out.add_(weight.bias)
