"""The decoder: one definition for Qwen3, Qwen2 and Llama, five ops a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from firsttoken.kernels.attention import attention
from firsttoken.kernels.embedding import embedding
from firsttoken.kernels.linear import Linear, Norm
from firsttoken.kernels.linear_add import linear_add
from firsttoken.kernels.norm_linear import norm_linear
from firsttoken.kernels.norm_linear_swiglu import norm_linear_swiglu
from firsttoken.kernels.plan import AttentionPlan, KVLayer, Rope
from firsttoken.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """One layer's weights."""

    input_norm: Norm
    qkv: Linear  # [(heads + 2 kv_heads) * head_dim, hidden]
    q_norm: Norm | None
    k_norm: Norm | None
    o: Linear  # [hidden, heads * head_dim]
    post_norm: Norm
    gate_up: Linear  # [2 inter, hidden], gate rows first
    down: Linear  # [hidden, inter]


@dataclass(frozen=True, slots=True)
class Decoder:
    """A whole model's weights on one device, and the pass through them."""

    config: ModelConfig
    dtype: torch.dtype  # of activations
    embedding: Tensor  # [vocab, hidden]; the head's own tensor where both are tied and dense
    layers: tuple[DecoderLayer, ...]
    final_norm: Norm
    head: Linear  # [vocab, hidden]

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that one decode step reads."""
        layers = sum(part.num_bytes for x in self.layers for part in (x.qkv, x.o, x.gate_up, x.down))
        return layers + self.head.num_bytes

    def forward(self, token_ids: Tensor, kv: Sequence[KVLayer], plan: AttentionPlan, rope: Rope) -> Tensor:
        """[tokens] int64 -> [tokens, hidden], before the final norm; writes keys and values into `kv`, one a layer."""
        x = embedding(token_ids, self.embedding).to(self.dtype)  # [tokens, hidden]
        for layer, cache in zip(self.layers, kv, strict=True):
            qkv = norm_linear(x, layer.input_norm, layer.qkv)
            attended = attention(qkv, layer.q_norm, layer.k_norm, rope, cache, plan)
            x = linear_add(attended, layer.o, x)
            inner = norm_linear_swiglu(x, layer.post_norm, layer.gate_up)
            x = linear_add(inner, layer.down, x)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] of `forward` -> float32 [rows, vocab]."""
        return norm_linear(hidden, self.final_norm, self.head, torch.float32)
