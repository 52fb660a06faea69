"""Shapes that cuBLAS and cuDNN would prepare for when a step first has them: done ahead, while nothing else runs.

The first product of a new row count costs some milliseconds, cuDNN's first attention of a new length about thirty.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from firsttoken.engine.profile_run import one_layer
from firsttoken.engine.step_shape import LIBRARY_LENGTHS, rounded_rows
from firsttoken.kernels.gpu import attend
from firsttoken.kernels.plan import KVLayer
from firsttoken.model.decoder import Decoder


def prepare_libraries(decoder: Decoder, cache: KVLayer, max_tokens: int) -> Iterator[bool]:
    """Every shape of steps without a graph up to `max_tokens` tokens; yields after each.

    The largest products come first, so that the smaller ones take the same memory.
    """
    for rows in reversed(rounded_rows(max_tokens)):
        one_layer(decoder, rows)
        torch.cuda.synchronize()
        yield True
    width = decoder.layers[0].qkv.out_features
    for length in LIBRARY_LENGTHS:
        if length > max_tokens:
            break
        qkv = torch.randn(length, width, dtype=decoder.dtype, device=decoder.device)
        out = torch.empty(length, decoder.config.num_heads * cache.head_dim, dtype=qkv.dtype, device=qkv.device)
        attend.fresh_prompt(qkv, cache, decoder.config.num_heads, cache.head_dim**-0.5, (0, length), out)
        torch.cuda.synchronize()
        yield True
