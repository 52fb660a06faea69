"""From the name of a kernel to the op that it does for the model."""

from __future__ import annotations

import re

# The first that matches wins.
_OPS = tuple(
    (op, re.compile(pattern, re.IGNORECASE))
    for op, pattern in (
        ("attention", r"row_attention|chunk_attention|cudnn|sdpa|flash|fmha|scaled_dot_product"),
        (
            "products",
            r"matvec|rows_dot|nvjet|cublas|cutlass|gemm|gemv|xmma|splitk|aten::(linear|matmul|addmm|mm)$",
        ),
        ("rope and cache", r"rope_cache"),
        ("rms_norm", r"rms_norm"),
        ("swiglu", r"swiglu"),
        ("embedding", r"embedding"),
        ("sampling", r"argmax|best_of_slices|\bdraw_kernel"),
        ("copies", r"^memcpy|^memset|^aten::(copy_|to|_to_copy|clone)$"),
    )
)


def op_name(kernel: str) -> str:
    """The op, or the kernel's own name without its types where it is none of ours."""
    for op, pattern in _OPS:
        if pattern.search(kernel):
            return op
    return re.split(r"[<(]", kernel.removeprefix("void "), maxsplit=1)[0].strip() or kernel
