"""Qwen3-4B-Instruct-2507's public config, as far as costs need it."""

from __future__ import annotations

from typing import Any

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 2560,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "rope_theta": 5000000,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
}
