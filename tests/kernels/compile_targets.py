"""Compiles every Triton kernel for a card's architecture, without the card; run as a program, for Triton decides once a
process whether it interprets.

    python -m tests.kernels.compile_targets 80 163

The second number is the shared memory, in KiB, that a program may use there. Prints a line a kernel: name, form, shared
memory in bytes.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from firsttoken.kernels.gpu.argmax import argmax_merge_kernel, argmax_slices_kernel
from firsttoken.kernels.gpu.chunk_attention import chunk_attention_kernel
from firsttoken.kernels.gpu.draw import best_of_slices_kernel, draw_kernel
from firsttoken.kernels.gpu.e4m3 import BY_CODE, NATIVE, PLAIN
from firsttoken.kernels.gpu.elementwise import embedding_kernel, rms_norm_kernel, swiglu_kernel
from firsttoken.kernels.gpu.launch import Op, default_product, fitting_row_tile, scales_in_tile
from firsttoken.kernels.gpu.matvec import matvec_kernel
from firsttoken.kernels.gpu.pair_rows import pair_rows_kernel
from firsttoken.kernels.gpu.prepare import prepare_rows_kernel
from firsttoken.kernels.gpu.quant_dot import quant_dot_kernel
from firsttoken.kernels.gpu.quant_fixed import quant_fixed_kernel
from firsttoken.kernels.gpu.quant_matvec import quant_matvec_kernel
from firsttoken.kernels.gpu.quant_pairs import quant_pairs_kernel
from firsttoken.kernels.gpu.rope_cache import rope_cache_kernel
from firsttoken.kernels.gpu.row_attention import row_attention_kernel
from firsttoken.kernels.gpu.rows_dot import rows_dot_kernel
from firsttoken.kernels.gpu.widen import fp8_rows_kernel, widen_kernel
from firsttoken.kernels.plan import CHUNK_TILE, LONG_CHUNK_TILE

FLOAT32 = {"powers", "sums", "kv_scales", "cos", "sin", "partial", "partial_ml", "logits", "best_value"}
INT32 = {"inputs", "contexts", "table_rows", "tables", "parts", "arrivals", "tiles", "best_id"}
INT64 = {"token_ids", "last_ids", "rope_rows", "slots"}
SCALARS = {"eps": "fp32", "scale": "fp32"}
QUANTISED = {
    "fp8-128x128": {"FORM": 3, "GROUP": 128, "ROWS": 128, "ZERO": 0},
    "int4-128-points": {"FORM": 1, "GROUP": 128, "ROWS": 1, "ZERO": 1},
    "int4-32": {"FORM": 1, "GROUP": 32, "ROWS": 1, "ZERO": 0},
    "int4-32-offsets": {"FORM": 1, "GROUP": 32, "ROWS": 1, "ZERO": 2},
    "int8-32": {"FORM": 2, "GROUP": 32, "ROWS": 1, "ZERO": 0},
}
HALF = dict.fromkeys(("x", "norm_weight", "bias", "residual", "out"), "*fp16")  # activations in float16
NUMBERS = {
    "M",
    "N",
    "stride",
    "table_width",
    "tile_count",
    "programs",
    "part_count",
    "rows",
    "single",
    "tile",
    "fused",
    "limit",
    "slices",
}


def build(kernel: Any, target: GPUTarget, warps: int, constants: dict[str, Any], **types: str) -> int:
    """Shared memory that the compiled kernel takes, in bytes."""
    signature = {name: _type(name, types) for name in kernel.arg_names if name not in constants}
    signature |= dict.fromkeys(constants, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if signature[name][0] == "*"}
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()},
        attrs=aligned,
    )
    return int(compile(source, target=target, options={"num_warps": warps}).metadata.shared)


def _type(name: str, types: dict[str, str]) -> str:
    if name in types:
        return types[name]
    if name in SCALARS or name in NUMBERS:
        return SCALARS.get(name, "i32")
    return "*fp32" if name in FLOAT32 else "*i32" if name in INT32 else "*i64" if name in INT64 else "*bf16"


def main(capability: int, shared_kib: int) -> None:
    target = GPUTarget("cuda", capability, 32)
    pdl = capability >= 90
    heads = {"KV_HEADS": 8, "HEAD_DIM": 128, "BLOCK": 16}
    products: list[tuple[Op, int, int]] = [
        ("norm_linear", 6144, 2560),
        ("norm_linear_swiglu", 9728, 2560),
        ("linear_add", 2560, 9728),
    ]
    for op, n, k in products:
        for rows in (1, 2, 16):
            launch = default_product(op, n, k, rows)
            flags = {
                "N": n,
                "K": k,
                "BN": launch.bn,
                "BK": launch.bk,
                "NORM": op != "linear_add",
                "FOLDED": False,
                "SWIGLU": op == "norm_linear_swiglu",
                "RESIDUAL": op == "linear_add",
                "BIAS": True,
                "PDL": pdl,
            }
            if launch.form == "matvec":
                used = build(matvec_kernel, target, launch.warps, flags | {"M": rows, "AHEAD": launch.ahead})
            elif launch.form == "dot":
                more = {"BM": 16, "SPLITS": 1, "STAGES": launch.stages, "PREFETCH": launch.prefetch if pdl else 0}
                used = build(rows_dot_kernel, target, launch.warps, flags | more)
            else:
                continue
            print(launch.form, f"{op}-{rows}", used)
    for kind, rows in itertools.product(QUANTISED, (1, 16, 64)):
        # gate and up: it holds two weight tiles at once
        launch = default_product("norm_linear_swiglu", 9728, 2560, rows, kind)
        flags = {"N": 9728, "K": 2560, "BN": launch.bn, "BK": launch.bk, "FOLDED": False, "SWIGLU": True}
        flags |= {"NORM": rows <= 16, "RESIDUAL": False, "BIAS": False, "PDL": pdl} | QUANTISED[kind]
        if rows == 1:
            types = {"w": "*i32", "scale": "*fp32" if kind[0] == "f" else "*fp16", "zero": "*u8"}
            by = {"ASM": True, "NATIVE": capability >= 89, "AHEAD": launch.ahead}
            print("quant_fixed", kind, build(quant_fixed_kernel, target, launch.warps, flags | by, **types))
            launch = default_product("norm_linear_swiglu", 9728, 2560, 1, kind, fixed=False)
            flags |= {"BN": launch.bn, "BK": launch.bk, "AHEAD": launch.ahead, "BY": 2 if capability >= 89 else 1}
            print("quant_matvec", kind, build(quant_matvec_kernel, target, launch.warps, flags, **types))
            half = build(quant_matvec_kernel, target, launch.warps, flags | {"BY": 0}, **types | HALF)
            print("quant_matvec", f"{kind}-half", half)
            continue
        flags |= {"BM": max(8, rows), "RM": rows, "SPLITS": 1, "STAGES": launch.stages, "PREFETCH": 0, "ASM": True}
        flags["SCALED"] = scales_in_tile(kind, launch.k, rows, launch.bk)
        types = {"w": "*u8", "scale": "*fp32" if kind[0] == "f" else "*fp16", "zero": "*u8"}
        print("quant_dot", f"{kind}-{rows}", build(quant_dot_kernel, target, launch.warps, flags, **types))
        half = build(quant_dot_kernel, target, launch.warps, flags | {"ASM": False}, **types | HALF)
        print("quant_dot", f"{kind}-{rows}-half", half)
        down = default_product("linear_add", 2560, 9728, rows, kind)
        split = {"N": 2560, "K": 9728, "BN": down.bn, "BK": down.bk, "SWIGLU": False, "NORM": False, "RESIDUAL": True}
        split |= {"SPLITS": down.splits, "STAGES": down.stages}
        built = build(quant_dot_kernel, target, down.warps, flags | split, **types)
        print("quant_dot", f"{kind}-{rows}-in-{down.splits}", built)
        if capability >= 89:  # whose matrix units multiply FP8
            for name in ("FOLDED", "NORM", "RM", "SCALED"):
                del flags[name]
            flags |= {"BN": 64, "BK": 128, "STAGES": 3}
            types |= {"pairs": "*fp8e4nv", "w": "*fp8e4nv" if kind[0] == "f" else "*u8"}
            print("quant_pairs", f"{kind}-{rows}", build(quant_pairs_kernel, target, 4, flags, **types))
    types = {"w": "*u8", "scale": "*fp16", "zero": "*u8"}
    widen = {"K": 2560, "BN": 16, "COUNT": 256} | QUANTISED["int4-128-points"]
    print("widen", "int4", build(widen_kernel, target, 4, widen, **types))
    if capability >= 89:
        rows_in_fp8 = {"K": 9728, "BK": 16384, "GROUP": 128, "NORM": True, "MAX": 448.0}
        types = {"out": "*fp8e4nv", "scales": "*fp32"}
        print("fp8_rows", "-", build(fp8_rows_kernel, target, 8, rows_in_fp8, **types))
        pairs = {"K": 9728, "BK": 16384, "NORM": True, "FOLDED": False, "SUMS": 128, "PDL": pdl}
        print("pair_rows", "-", build(pair_rows_kernel, target, 16, pairs, out="*fp8e4nv"))
    fp8 = NATIVE if capability >= 89 else BY_CODE
    caches = {"": ({"KV_FORM": PLAIN}, {}), "-fp8": ({"KV_FORM": fp8}, {"k_cache": "*u8", "v_cache": "*u8"})}
    for (cache, (how, kv)), fused, rows in itertools.product(caches.items(), (True, False), (1, 64)):
        tile = fitting_row_tile(shared_kib * 1024, 128, rows, fp8_cache=bool(cache))
        constants = heads | {"GROUP": 4, "GROUP_PAD": 4, "TILE_ROWS": 16, "BT": tile.tokens, "STAGES": tile.stages}
        early = tile.early if pdl and fused else 0
        constants |= {"MERGE": tile.merge, "QK_NORM": True, "FUSED": fused, "PDL": pdl, "EARLY": early} | how
        form = f"{'fused' if fused else 'separate'}-{rows}{cache}"
        print("row_attention", form, build(row_attention_kernel, target, 4, constants, **kv))
    if pdl:  # a head that is narrower than a line of L2
        narrow = constants | {"HEAD_DIM": 32, "KV_FORM": PLAIN, "FUSED": True, "EARLY": 2}
        print("row_attention", "narrow", build(row_attention_kernel, target, 4, narrow))
    for (cache, (how, kv)), tokens in itertools.product(caches.items(), (CHUNK_TILE, LONG_CHUNK_TILE)):
        chunk = heads | {"GROUP": 4, "GROUP_PAD": 4, "BQ": tokens, "BT": 64, "STAGES": 3, "PDL": pdl} | how
        chunk |= {"PAIRED": bool(cache) and not pdl}
        print("chunk_attention", f"{tokens}{cache}", build(chunk_attention_kernel, target, 4, chunk, **kv))
    for cache, (how, kv) in caches.items():
        rope = heads | {"HEADS": 32, "HEADS_PAD": 32, "KV_PAD": 8, "QK_NORM": True, "PDL": pdl} | how
        print("rope_cache", f"plain{cache}", build(rope_cache_kernel, target, 4, rope, **kv))
    print("rms_norm", "-", build(rms_norm_kernel, target, 8, {"K": 2560, "BK": 4096, "FOLDED": False}))
    print("swiglu", "-", build(swiglu_kernel, target, 4, {"N": 9728, "BN": 1024}))
    print("embedding", "-", build(embedding_kernel, target, 4, {"K": 2560, "BK": 4096}))
    prepare = {"ROWS_PAD": 1024, "PARTS_PAD": 512, "BLOCK": 16, "KV_HEADS": 8}
    print("prepare", "-", build(prepare_rows_kernel, target, 4, prepare))
    print("argmax", "slices", build(argmax_slices_kernel, target, 4, {"V": 151936, "BV": 2048, "PDL": pdl}))
    # Lists shorter than a real vocabulary's: a whole sort takes half a minute to compile, and no more shared memory
    slices = build(best_of_slices_kernel, target, 8, {"COUNT": 64, "BV": 512}, best="*i64")
    print("draw", "slices", slices)
    types = {"best": "*i64", "parameters": "*fp64", "ids": "*i64"}
    print("draw", "merge", build(draw_kernel, target, 8, {"COUNT": 64, "ALL": 512}, **types))
    merge = {"BS": 128, "PDL": pdl}
    print("argmax", "merge", build(argmax_merge_kernel, target, 4, merge, out="*i64"))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
