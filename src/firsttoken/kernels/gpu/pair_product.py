"""A product of some rows with a quantised weight by pairs of E4M3 numbers: the rows are paired, then multiplied."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from firsttoken.kernels.gpu.call import dependent, overlap, run_kernel
from firsttoken.kernels.gpu.card_facts import facts_of
from firsttoken.kernels.gpu.launch import Product, quant_tile_rows
from firsttoken.kernels.gpu.pair_rows import pair_rows_kernel
from firsttoken.kernels.gpu.quant_pairs import quant_pairs_kernel
from firsttoken.kernels.gpu.quant_product import form_constants
from firsttoken.kernels.gpu.split_parts import split_parts
from firsttoken.kernels.linear import GpuLinear, Norm
from firsttoken.kernels.quant_linear import QuantLinear

_WIDE = 4096  # inputs of a row beyond which more threads pair them


def pair_product(
    launch: Product,
    x: Tensor,
    weight: GpuLinear,
    out: Tensor,
    *,
    norm: Norm | None = None,
    residual: Tensor | None = None,
    swiglu: bool = False,
) -> Tensor:
    """x [rows, in], normalised where there is a norm, times the weight: into `out` [rows, N]."""
    assert isinstance(weight, QuantLinear), "no table has this form for a dense weight"
    rows, k = x.shape
    pdl = dependent(x)
    block = quant_tile_rows(rows)
    blocks, tiles = triton.cdiv(rows, block), triton.cdiv(launch.n, launch.bn)
    tile = 0 if weight.form == "fp8" else launch.bk
    pairs, powers, sums = pair_rows(x, norm, padded=blocks * block, tile=tile, pdl=pdl)
    partial, arrivals = split_parts(launch, out, (tiles * blocks, launch.splits, 1 + swiglu, launch.bn, block))
    run_kernel(
        quant_pairs_kernel,
        (tiles, launch.splits, blocks),
        pairs,
        powers,
        sums,
        weight.data.view(torch.float8_e4m3fn) if weight.form == "fp8" else weight.data,
        weight.scale,
        weight.scale if weight.zero is None else weight.zero,
        out if weight.bias is None else weight.bias,
        out if residual is None else residual,
        out,
        partial,
        arrivals,
        rows,
        N=launch.n,
        K=k,
        BM=block,
        BN=launch.bn,
        BK=launch.bk,
        STAGES=launch.stages,
        SPLITS=launch.splits,
        PREFETCH=launch.prefetch if pdl else 0,
        SWIGLU=swiglu,
        RESIDUAL=residual is not None,
        BIAS=weight.bias is not None,
        ASM=facts_of(x.device) is not None,
        num_warps=launch.warps,
        PDL=pdl,
        **form_constants(weight),
        **overlap(pdl),
    )
    return out


def pair_rows(x: Tensor, norm: Norm | None, *, padded: int, tile: int, pdl: bool) -> tuple[Tensor, Tensor, Tensor]:
    """x [rows, in], normalised where there is a norm, as the `pair_rows_kernel` leaves it.

    That is pairs [padded, 2, in] E4M3, powers [padded] and sums of `tile` inputs each [padded, tiles] float32, none
    with 0. Rows past the last are zeros.
    """
    rows, k = x.shape
    pairs = torch.empty(padded, 2, k, dtype=torch.float8_e4m3fn, device=x.device)
    powers = torch.empty(padded, dtype=torch.float32, device=x.device)
    sums = torch.empty(padded, k // tile, dtype=torch.float32, device=x.device) if tile else powers
    width = triton.next_power_of_2(k)
    run_kernel(
        pair_rows_kernel,
        (padded,),
        x,
        x if norm is None else norm.weight,
        pairs,
        powers,
        sums,
        0.0 if norm is None else norm.eps,
        rows,
        K=k,
        BK=width,
        NORM=norm is not None,
        FOLDED=norm is not None and norm.folded,
        SUMS=tile,
        PDL=pdl,
        num_warps=8 if width <= _WIDE else 16,
        **overlap(pdl),
    )
    return pairs, powers, sums
