"""From the name of a kernel to the op that it does for the model."""

from __future__ import annotations

import re

# The first that matches wins.
_OPS = tuple(
    (op, re.compile(pattern, re.IGNORECASE))
    for op, pattern in (
        ("communication", r"nccl|all_?reduce|all_?gather|reduce_?scatter"),
        ("rope and cache", r"rope|rotary|reshape_and_cache|store_kvcache"),
        ("attention", r"row_attention|chunk_attention|cudnn|sdpa|flash|fmha|scaled_dot_product|paged|attention|xqa"),
        (
            "products",
            r"matvec|rows_dot|quant_(dot|fixed|pairs)|pair_rows|widen_kernel|fp8_rows|"
            r"nvjet|cublas|cutlass|gemm|gemv|xmma|splitk|marlin|machete|aten::(linear|matmul|addmm|mm)$",
        ),
        ("rms_norm", r"rms_?norm"),
        ("swiglu", r"swiglu|silu|act_and_mul"),
        ("embedding", r"embedding"),
        ("sampling", r"argmax|best_of_slices|\bdraw_kernel|top_?k|top_?p|radixsort|multinomial|sampl"),
        ("copies", r"^memcpy|^memset|^aten::(copy_|to|_to_copy|clone)$"),
    )
)


def op_name(kernel: str) -> str:
    """The op, or the kernel's own name without its types where it is none of ours."""
    for op, pattern in _OPS:
        if pattern.search(kernel):
            return op
    return re.split(r"[<(]", kernel.removeprefix("void "), maxsplit=1)[0].strip() or kernel
