"""Torch references: the meaning of every op. Slow and plain; each fast form is tested against these.

Activations keep their dtype at op borders; norms, softmax and accumulation run in float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from firsttoken.kernels.linear import DenseLinear, GpuLinear, Norm
from firsttoken.kernels.plan import AttentionPlan, KVLayer, Rope


def rms_norm(x: Tensor, norm: Norm) -> Tensor:
    """[..., hidden] -> the same shape and dtype."""
    x32 = x.to(torch.float32)
    scale = torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + norm.eps)
    return (x32 * scale).to(x.dtype) * norm.weight.to(x.dtype)


def linear(x: Tensor, weight: GpuLinear) -> Tensor:
    """[tokens, in] -> [tokens, out]; a quantised weight is widened to x's dtype first."""
    values = weight.weight if isinstance(weight, DenseLinear) else weight.dequantize().to(x.dtype)
    return F.linear(x, values, weight.bias)


def norm_linear(x: Tensor, norm: Norm, weight: GpuLinear) -> Tensor:
    """RMSNorm, then the product: [tokens, in] -> [tokens, out]."""
    return linear(rms_norm(x, norm), weight)


def linear_add(x: Tensor, weight: GpuLinear, residual: Tensor) -> Tensor:
    """residual + x W^T: [tokens, in], residual [tokens, out] -> [tokens, out]."""
    return residual + linear(x, weight)


def norm_linear_swiglu(x: Tensor, norm: Norm, weight: GpuLinear) -> Tensor:
    """RMSNorm, the gate and up products (rows [0, inter) are the gate), silu(gate) * up: -> [tokens, inter]."""
    gate, up = norm_linear(x, norm, weight).chunk(2, dim=-1)
    return F.silu(gate) * up


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates [tokens, heads, head_dim] by cos and sin [tokens, head_dim / 2]; halves are paired (NeoX order)."""
    x1, x2 = x.to(torch.float32).chunk(2, dim=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return torch.cat([x1 * c - x2 * s, x2 * c + x1 * s], dim=-1).to(x.dtype)


def attention(
    qkv: Tensor,
    q_norm: Norm | None,
    k_norm: Norm | None,
    rope: Rope,
    kv: KVLayer,
    plan: AttentionPlan,
) -> Tensor:
    """QK-norm, RoPE, KV write and causal paged attention.

    qkv [tokens, (heads + 2 kv_heads) * head_dim] -> [tokens, heads * head_dim]; rows past plan.num_tokens are padding.
    """
    heads, kv_heads, head_dim = plan.num_heads, kv.num_kv_heads, kv.head_dim
    tokens = qkv.shape[0]
    q, k, v = qkv.view(tokens, heads + 2 * kv_heads, head_dim).split([heads, kv_heads, kv_heads], dim=1)
    if q_norm is not None:
        q = rms_norm(q, q_norm)
    if k_norm is not None:
        k = rms_norm(k, k_norm)
    cos, sin = rope.cos[plan.rope_rows], rope.sin[plan.rope_rows]  # [tokens, head_dim / 2]
    q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)

    written = plan.slots >= 0  # padding rows write nothing
    kv.write(plan.slots[written], k[written], v[written])

    out = torch.zeros(tokens, heads, head_dim, dtype=qkv.dtype, device=qkv.device)
    for row, (start, end, context) in enumerate(plan.host_rows):
        keys, values = kv.gather(plan.block_tables[row], context)  # [context, kv_heads, head_dim]
        out[start:end] = _causal(q[start:end], keys, values, plan.scale)
    return out.view(tokens, heads * head_dim)


def _causal(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """The last q.shape[0] positions of a context attend to all before them: [n, heads, head_dim]."""
    n, heads, _ = q.shape
    context, kv_heads, _ = keys.shape
    group = heads // kv_heads
    qf = q.to(torch.float32).view(n, kv_heads, group, -1).permute(1, 2, 0, 3)  # [kv_heads, group, n, head_dim]
    kf = keys.to(torch.float32).permute(1, 2, 0)[:, None]  # [kv_heads, 1, head_dim, context]
    vf = values.to(torch.float32).permute(1, 0, 2)[:, None]  # [kv_heads, 1, context, head_dim]
    scores = qf @ kf * scale  # [kv_heads, group, n, context]
    position = torch.arange(context - n, context, device=q.device)
    hidden = torch.arange(context, device=q.device)[None, :] > position[:, None]
    scores = scores.masked_fill(hidden, float("-inf"))
    out = torch.softmax(scores, dim=-1) @ vf  # [kv_heads, group, n, head_dim]
    return out.permute(2, 0, 1, 3).reshape(n, heads, -1).to(q.dtype)


def embedding(token_ids: Tensor, weight: Tensor) -> Tensor:
    """[tokens] -> [tokens, hidden]."""
    return F.embedding(token_ids, weight)
