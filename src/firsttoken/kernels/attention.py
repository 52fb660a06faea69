"""QK-norm, RoPE, KV write and paged attention in one op."""

from __future__ import annotations

from torch import Tensor

from firsttoken.kernels import reference
from firsttoken.kernels.cpu_ops import cpu_kernels
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
    if qkv.device.type == "cpu" and (kernels := cpu_kernels()) is not None and kernels.can_attend(qkv, kv):
        return kernels.attention(qkv, q_norm, k_norm, rope, kv, plan)
    if plan.rows is not None or plan.chunks is not None:  # made for the GPU's kernels
        from firsttoken.kernels.gpu import attend

        return attend.attention(qkv, q_norm, k_norm, rope, kv, plan)
    return reference.attention(qkv, q_norm, k_norm, rope, kv, plan)
