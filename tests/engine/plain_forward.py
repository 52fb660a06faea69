"""A decoder's forward pass in plain torch, in any precision: what whole engines are compared with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from firsttoken.kernels.linear import DenseLinear, Linear, Norm
from firsttoken.model.decoder import Decoder
from firsttoken.model.rope import RopeTable


def log_probs(
    decoder: Decoder,
    ids: list[int],
    last: int,
    dtype: torch.dtype,
    vocabulary: int,
    kv_scales: list[Tensor] | None = None,
) -> Tensor:
    """Of the tokens after each of the `last` positions: [last, vocabulary], float64 for float64 and else float32.

    Activations are `dtype`; norms, rotations and softmax run in float64 for float64 and else in float32. With
    `kv_scales`, [2, kv_heads] a layer, keys and values are rounded to E4M3 numbers in units of those.
    """
    config = decoder.config
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    heads, kv_heads, dim = config.num_heads, config.num_kv_heads, config.head_dim
    tokens = torch.tensor(ids, device=decoder.device)
    rope = RopeTable(config, len(ids), decoder.device).rope
    cos, sin = (table.to(wide)[:, None] for table in (rope.cos, rope.sin))

    def norm(x: Tensor, by: Norm | None) -> Tensor:
        if by is None:
            return x
        x_wide = x.to(wide)
        scaled = x_wide * torch.rsqrt(x_wide.pow(2).mean(-1, keepdim=True) + by.eps)
        return scaled.to(dtype) * by.weight.to(dtype)

    def product(x: Tensor, linear: Linear, out: torch.dtype = dtype) -> Tensor:
        assert isinstance(linear, DenseLinear)
        return F.linear(x, linear.weight.to(dtype), None if linear.bias is None else linear.bias.to(dtype)).to(out)

    def rotate(x: Tensor) -> Tensor:
        first, second = x.to(wide).chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(dtype)

    def rounded(x: Tensor, scale: Tensor) -> Tensor:
        in_units = (x.to(torch.float32) / scale[:, None]).clamp(-448, 448)
        return (in_units.to(torch.float8_e4m3fn).to(torch.float32) * scale[:, None]).to(x.dtype)

    x = decoder.embedding[tokens].to(dtype)
    for i, layer in enumerate(decoder.layers):
        qkv = product(norm(x, layer.input_norm), layer.qkv).view(len(ids), heads + 2 * kv_heads, dim)
        q, k, v = qkv.split([heads, kv_heads, kv_heads], dim=1)
        q, k = rotate(norm(q, layer.q_norm)), rotate(norm(k, layer.k_norm))
        if kv_scales is not None:
            k, v = rounded(k, kv_scales[i][0]), rounded(v, kv_scales[i][1])
        q, k, v = (part.to(wide).transpose(0, 1) for part in (q, k, v))  # [heads, tokens, dim]
        k, v = (part.repeat_interleave(heads // kv_heads, dim=0) for part in (k, v))
        scores = (q @ k.transpose(1, 2) * dim**-0.5).masked_fill(
            torch.ones(len(ids), len(ids), dtype=torch.bool, device=x.device).triu(1), float("-inf")
        )
        attended = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(ids), -1).to(dtype)
        x = x + product(attended, layer.o)
        gate, up = product(norm(x, layer.post_norm), layer.gate_up).chunk(2, dim=-1)
        x = x + product(F.silu(gate) * up, layer.down)
    logits = product(norm(x[-last:], decoder.final_norm), decoder.head, wide)[:, :vocabulary]
    return logits.log_softmax(-1)
