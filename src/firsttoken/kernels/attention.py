"""QK-norm, RoPE, KV write and paged attention in one op."""

from __future__ import annotations

from torch import Tensor

from firsttoken.kernels import reference
from firsttoken.kernels.linear import Norm
from firsttoken.kernels.plan import AttentionPlan, KVLayer, Rope


def attention(
    qkv: Tensor,
    q_norm: Norm | None,
    k_norm: Norm | None,
    rope: Rope,
    kv: KVLayer,
    plan: AttentionPlan,
) -> Tensor:
    """[tokens, (heads + 2 kv_heads) * head_dim] -> [tokens, heads * head_dim]; writes this step's keys and values."""
    return reference.attention(qkv, q_norm, k_norm, rope, kv, plan)
