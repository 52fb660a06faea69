"""What a GPU's largest step takes beside weights and cache: run once and read off, so that the pool gets the rest."""

from __future__ import annotations

import torch

from firsttoken.kernels import sampling
from firsttoken.kernels.linear_add import linear_add
from firsttoken.kernels.norm_linear import norm_linear
from firsttoken.kernels.norm_linear_swiglu import norm_linear_swiglu
from firsttoken.model.decoder import Decoder


@torch.inference_mode()
def activation_bytes(decoder: Decoder, *, max_tokens: int, max_num_seqs: int, vocabulary: int) -> int:
    """Bytes that the allocator took for a step of `max_tokens` tokens, and for sampling in the form that needs most.

    It keeps them for the steps to come. Raises torch.OutOfMemoryError.
    """
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(decoder.device)
    one_layer(decoder, max_tokens)
    hidden = torch.randn(max_num_seqs, decoder.config.hidden_size, dtype=decoder.dtype, device=decoder.device)
    logits = sampling.sanitize(decoder.logits(hidden)[:, :vocabulary])
    rows = torch.full((max_num_seqs,), 0.5, device=decoder.device)
    sampling.draw(logits, -1, rows, torch.zeros_like(rows, dtype=torch.int64), rows, rows, rows.double())
    torch.cuda.synchronize(decoder.device)
    return torch.cuda.memory_reserved(decoder.device) - before


@torch.inference_mode()
def one_layer(decoder: Decoder, rows: int) -> None:
    """A layer without its attention, over `rows` random tokens."""
    layer = decoder.layers[0]
    x = torch.randn(rows, decoder.config.hidden_size, dtype=decoder.dtype, device=decoder.device)
    norm_linear(x, layer.input_norm, layer.qkv)
    attended = torch.randn(rows, layer.o.in_features, dtype=x.dtype, device=x.device)
    x = linear_add(attended, layer.o, x)
    linear_add(norm_linear_swiglu(x, layer.post_norm, layer.gate_up), layer.down, x)
