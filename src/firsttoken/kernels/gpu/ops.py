"""The products of a layer on a GPU: each picks its form by shape and rows, and launches it.

Every product takes a `launch` that overrides the choice, for tests and for measuring.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from firsttoken.kernels.gpu.call import Call, dependent, overlap, run_kernel
from firsttoken.kernels.gpu.card_facts import facts_of
from firsttoken.kernels.gpu.elementwise import embedding_kernel, rms_norm_kernel, swiglu_kernel
from firsttoken.kernels.gpu.launch import DENSE, Op, Product, default_product, quant_tile_rows, scales_in_tile
from firsttoken.kernels.gpu.launch_table import pick
from firsttoken.kernels.gpu.matvec import matvec_kernel
from firsttoken.kernels.gpu.pair_product import pair_product
from firsttoken.kernels.gpu.quant_dot import quant_dot_kernel
from firsttoken.kernels.gpu.quant_fixed import quant_fixed_kernel
from firsttoken.kernels.gpu.quant_matvec import quant_matvec_kernel
from firsttoken.kernels.gpu.quant_product import form_constants, fp8_product, has_fp8_product, widened
from firsttoken.kernels.gpu.rows_dot import rows_dot_kernel
from firsttoken.kernels.gpu.split_parts import split_parts
from firsttoken.kernels.linear import DenseLinear, GpuLinear, Norm
from firsttoken.kernels.quant_linear import QuantLinear

_FOLDED_ROWS = 16  # of activations that a quantised product normalises on its way: more would take too many registers
_SWIGLU_TILE = 1024


def embedding(token_ids: Tensor, weight: Tensor) -> Tensor:
    """[tokens] int64 -> [tokens, hidden]. Waits for all before it: it begins a step."""
    rows, hidden = len(token_ids), weight.shape[1]
    out = weight.new_empty(rows, hidden)
    run_kernel(
        embedding_kernel, (rows,), token_ids, weight, out, K=hidden, BK=triton.next_power_of_2(hidden), num_warps=4
    )
    return out


def norm_linear(
    x: Tensor,
    norm: Norm,
    weight: GpuLinear,
    out_dtype: torch.dtype | None = None,
    *,
    launch: Product | None = None,
) -> Tensor:
    """As `kernels.norm_linear`."""
    launch = launch or picked(x, "norm_linear", weight.out_features, weight)
    if launch.form == "library":
        return _normed(x, norm, weight, out_dtype)
    out = x.new_empty(len(x), weight.out_features, dtype=out_dtype)
    if launch.form == "pairs":
        return pair_product(launch, x, weight, out, norm=norm)
    if not folds_norm(weight, len(x)):
        arrange(launch, rms_norm(x, norm), weight, out, pdl=dependent(x)).run()
        return out
    arrange(launch, x, weight, out, norm=norm, pdl=dependent(x)).run()
    return out


def norm_linear_swiglu(x: Tensor, norm: Norm, weight: GpuLinear, *, launch: Product | None = None) -> Tensor:
    """As `kernels.norm_linear_swiglu`."""
    inter = weight.out_features // 2
    launch = launch or picked(x, "norm_linear_swiglu", inter, weight)
    out = x.new_empty(len(x), inter)
    if launch.form == "library":
        gate_up = _normed(x, norm, weight)
        run_kernel(swiglu_kernel, (len(x), triton.cdiv(inter, _SWIGLU_TILE)), gate_up, out, N=inter, BN=_SWIGLU_TILE)
        return out
    if launch.form == "pairs":
        return pair_product(launch, x, weight, out, norm=norm, swiglu=True)
    if not folds_norm(weight, len(x)):
        arrange(launch, rms_norm(x, norm), weight, out, swiglu=True, pdl=dependent(x)).run()
        return out
    arrange(launch, x, weight, out, norm=norm, swiglu=True, pdl=dependent(x)).run()
    return out


def linear_add(x: Tensor, weight: GpuLinear, residual: Tensor, *, launch: Product | None = None) -> Tensor:
    """As `kernels.linear_add`."""
    launch = launch or picked(x, "linear_add", weight.out_features, weight)
    if launch.form == "library":
        if isinstance(weight, QuantLinear) and has_fp8_product(x, weight):
            product = fp8_product(x, weight)
            return residual if x.is_meta else residual.add_(product)
        dense = widened(weight, x.dtype)
        if x.is_meta:  # as in `_product`
            return residual
        out = torch.addmm(residual, x, dense.weight.t(), out=residual)  # elsewhere it would be copied there first
        return out if weight.bias is None else out.add_(weight.bias)
    out = residual.new_empty(residual.shape)
    if launch.form == "pairs":
        return pair_product(launch, x, weight, out, residual=residual)
    arrange(launch, x, weight, out, residual=residual, pdl=dependent(x)).run()
    return out


def folds_norm(weight: GpuLinear, rows: int) -> bool:
    """Whether our kernels of a product normalise the rows themselves; else `rms_norm` does it before them."""
    return isinstance(weight, DenseLinear) or rows <= _FOLDED_ROWS


def rms_norm(x: Tensor, norm: Norm) -> Tensor:
    """[tokens, hidden] -> the same."""
    rows, hidden = x.shape
    out = x.new_empty(x.shape)
    run_kernel(
        rms_norm_kernel,
        (rows,),
        x,
        norm.weight,
        out,
        norm.eps,
        K=hidden,
        BK=triton.next_power_of_2(hidden),
        FOLDED=norm.folded,
        num_warps=8,
    )
    return out


def _normed(x: Tensor, norm: Norm, weight: GpuLinear, out_dtype: torch.dtype | None = None) -> Tensor:
    """The library's product of normalised rows."""
    if isinstance(weight, QuantLinear) and has_fp8_product(x, weight):
        out = fp8_product(x, weight, norm)
        return out if out_dtype is None else out.to(out_dtype)
    return _product(rms_norm(x, norm), widened(weight, x.dtype), out_dtype)


def _product(x: Tensor, weight: DenseLinear, out_dtype: torch.dtype | None = None) -> Tensor:
    if x.is_meta:  # to ask torch for a shape would import half of it, for seconds
        return x.new_empty(len(x), weight.out_features, dtype=out_dtype)
    if weight.bias is not None:
        out = torch.addmm(weight.bias, x, weight.weight.t())
        return out if out_dtype is None else out.to(out_dtype)
    if out_dtype is None or out_dtype == x.dtype:
        return torch.mm(x, weight.weight.t())
    return torch.mm(x, weight.weight.t(), out_dtype=out_dtype)


def picked(x: Tensor, op: Op, n: int, weight: GpuLinear) -> Product:
    """The launch in use for rows x [rows, in] and a weight: of the card's table, where its form can take them."""
    kind = weight.kind if isinstance(weight, QuantLinear) else DENSE
    card = facts_of(x.device)
    launch = pick("" if card is None else card.name, op, n, weight.in_features, len(x), kind)
    # A table may be of another card, or measured with other activations: float16 has no pairs, and `fixed` only without
    # the instructions that make it fast
    right = x.dtype == torch.bfloat16 and card is not None and (card.has_fp8 or launch.form == "fixed")
    if launch.form in ("fixed", "pairs") and not right:
        return default_product(op, n, weight.in_features, len(x), kind, fixed=False)
    return launch


def arrange(
    launch: Product,
    x: Tensor,
    weight: GpuLinear,
    out: Tensor,
    *,
    norm: Norm | None = None,
    residual: Tensor | None = None,
    swiglu: bool = False,
    pdl: bool,
) -> Call:
    """The call that `launch`, of a kernel of ours, stands for: of the op that the operands make it."""
    weights: tuple[Tensor, ...]
    if isinstance(weight, QuantLinear):
        weights = (weight.data, weight.scale, weight.scale if weight.zero is None else weight.zero)
    else:
        weights = (weight.weight,)
    others = (
        x if norm is None else norm.weight,
        x if weight.bias is None else weight.bias,
        x if residual is None else residual,
        out,
    )
    eps = 0.0 if norm is None else norm.eps
    options = {
        "N": launch.n,
        "K": launch.k,
        "BN": launch.bn,
        "BK": launch.bk,
        "NORM": norm is not None,
        "FOLDED": norm is not None and norm.folded,
        "SWIGLU": swiglu,
        "RESIDUAL": residual is not None,
        "BIAS": weight.bias is not None,
        "PDL": pdl,
        "num_warps": launch.warps,
        **overlap(pdl),
    }
    rows, tiles = len(x), triton.cdiv(launch.n, launch.bn)
    if isinstance(weight, QuantLinear):
        options |= form_constants(weight)
        # Bytes are put into place by instructions of the card, for the type that its matrix units multiply best
        card = facts_of(x.device)
        by_asm = x.dtype == torch.bfloat16 and card is not None
        if launch.form in ("matvec", "fixed"):
            native = card is not None and card.has_fp8
            weights = (weight.data.view(torch.int32), *weights[1:])
            options |= {"AHEAD": launch.ahead}
            if launch.form == "fixed":
                options |= {"ASM": by_asm, "NATIVE": native}
                return Call(quant_fixed_kernel, (tiles,), (x, *weights, *others, eps), options)
            options |= {"BY": 0 if not by_asm else 2 if native else 1}
            return Call(quant_matvec_kernel, (tiles,), (x, *weights, *others, eps), options)
        padded = quant_tile_rows(rows)
        scaled = scales_in_tile(weight.kind, launch.k, rows, launch.bk)
        options |= {"RM": min(triton.next_power_of_2(rows), padded), "ASM": by_asm, "SCALED": scaled}
    elif launch.form == "matvec":
        return Call(matvec_kernel, (tiles,), (x, *weights, *others, eps), options | {"M": rows, "AHEAD": launch.ahead})
    else:
        padded = max(16, triton.next_power_of_2(rows))
    blocks = triton.cdiv(rows, padded)
    parts = 1 + swiglu + (norm is not None)
    partial, arrivals = split_parts(launch, out, (tiles * blocks, launch.splits, parts, launch.bn, padded))
    options |= {
        "BM": padded,
        "STAGES": launch.stages,
        "SPLITS": launch.splits,
        "PREFETCH": launch.prefetch if pdl else 0,
    }
    kernel = quant_dot_kernel if isinstance(weight, QuantLinear) else rows_dot_kernel
    arguments = (x, *weights, *others, partial, arrivals, eps, rows)
    return Call(kernel, (tiles, launch.splits, blocks), arguments, options)
