"""Shapes of models that people name, from their public config.json, so that an answer needs no network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from firsttoken.model.config import ModelConfig, parse_config

_QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
}


def _qwen3(hidden: int, layers: int, heads: int, intermediate: int, **other: Any) -> dict[str, Any]:
    return _QWEN3 | {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": intermediate,
        **other,
    }


_CONFIGS = {  # of one family the largest first
    "Qwen/Qwen3-8B": _qwen3(4096, 36, 32, 12288, tie_word_embeddings=False),
    "Qwen/Qwen3-4B-Instruct-2507": _qwen3(2560, 36, 32, 9728, rope_theta=5000000, max_position_embeddings=262144),
    "Qwen/Qwen3-4B": _qwen3(2560, 36, 32, 9728),
    "Qwen/Qwen3-1.7B": _qwen3(2048, 28, 16, 6144),
    "Qwen/Qwen3-0.6B": _qwen3(1024, 28, 16, 3072),
}


def named_config(name: str) -> ModelConfig | None:
    """The config of a repository whose shapes are known here."""
    raw = _CONFIGS.get(name)
    return None if raw is None else parse_config(raw)


def by_size() -> Iterator[tuple[str, ModelConfig]]:
    """Every such model, the largest first."""
    for name, raw in _CONFIGS.items():
        yield name, parse_config(raw)
