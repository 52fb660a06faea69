"""Quantised weights times many rows: FP8 by the library where the card multiplies FP8, all others widened first."""

from __future__ import annotations

import functools

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
_BLOCK = 128  # rows and inputs of an FP8 weight's block
_WIDEN_ROWS, _WIDEN_BYTES = 16, 256  # of the weight, a program
_NARROW = 4096  # inputs of a row up to which half the threads round it no slower


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
    """Whether `fp8_product` takes these: FP8 by row, or in blocks where the library has a product for them."""
    card = facts_of(x.device)
    if card is None or not isinstance(weight, QuantLinear) or weight.form != "fp8" or x.dtype != torch.bfloat16:
        return False
    if weight.rows == 1 and weight.group >= weight.in_features:
        return weight.out_features % 16 == 0 and card.has_fp8
    return _in_blocks(weight) and card.capability == (9, 0) and _library_has_blocks()


def _in_blocks(weight: QuantLinear) -> bool:
    """Whether the library knows such blocks. Four divide a row, whose scales it expects at multiples of four."""
    whole = weight.out_features % _BLOCK == 0 and weight.in_features % (4 * _BLOCK) == 0
    return weight.rows == weight.group == _BLOCK and whole


@functools.cache
def _library_has_blocks() -> bool:
    """cuBLAS 12.9 and up. A torch without CUDA imagines a card whose torch has it."""
    version = torch.version.cuda
    return version is None or tuple(map(int, version.split(".")[:2])) >= (12, 9)


def fp8_product(x: Tensor, weight: QuantLinear, norm: Norm | None = None) -> Tensor:
    """x (normalised first) rounded to FP8, times an FP8 weight: [rows, in] -> [rows, out] bfloat16.

    Rounded by row, or of a weight in blocks by 128 inputs of a row, as DeepSeek-V3 does (arXiv 2412.19437).
    """
    m, k = x.shape
    by_row = weight.rows == 1
    rows, scales = fp8_rows(x, norm, group=0 if by_row else _BLOCK, padded=m if by_row else -(-m // 4) * 4)
    if x.is_meta:  # to ask torch for a shape would import half of it, for seconds
        return torch.empty(m, weight.out_features, dtype=torch.bfloat16, device=x.device)
    columns = weight.data.view(torch.float8_e4m3fn).t()
    of_weight = weight.scale.to(torch.float32)
    of_weight = of_weight.view(1, -1) if by_row else of_weight.view(-1, k // _BLOCK).t()
    out: Tensor = torch._scaled_mm(rows, columns, scale_a=scales, scale_b=of_weight, out_dtype=torch.bfloat16)[:m]
    return out if weight.bias is None else out.add_(weight.bias)


def fp8_rows(x: Tensor, norm: Norm | None, *, group: int, padded: int) -> tuple[Tensor, Tensor]:
    """x [rows, in], normalised first, as E4M3 [padded, in] and its scales, float32 [padded, groups of a row].

    `group` inputs share a scale; 0 is a whole row. The scales of one group lie together. Padding is left as it was.
    """
    m, k = x.shape
    width = triton.next_power_of_2(k)
    rows = torch.empty(padded, k, dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty(k // group if group else 1, padded, dtype=torch.float32, device=x.device)
    given, eps = (x, 0.0) if norm is None else (norm.weight, norm.eps)
    options = {"K": k, "BK": width, "GROUP": group or width, "NORM": norm is not None, "MAX": _FP8_MAX}
    warps = 4 if width <= _NARROW else 8
    run_kernel(fp8_rows_kernel, (m,), x, given, rows, scales, eps, padded, **options, num_warps=warps)
    return rows, scales.t() if group else scales.view(-1, 1)
