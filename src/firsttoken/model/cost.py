"""Bytes and FLOPs of a token, from a config alone: what a roofline, a memory plan or a step's time is made of.

A multiply-add counts as two FLOPs. Attention counts the scores and the weighted sum over the causal half.
"""

from __future__ import annotations

from firsttoken.model.config import ModelConfig

CPU_WEIGHT = {"keep": 1.0625, "int8": 1.0625, "int4": 0.625}
"""Bytes of a weight in each low-bit form of a CPU, scales included; `keep` is at most that."""
GPU_PRODUCT = {"fp8": 1.0, "int8": 1 + 2 / 128, "int4": 0.5 + 3 / 128}
"""Bytes of a weight of the layers' products in each form that a GPU gives them; its other weights stay dense."""
GPU_HEAD = dict.fromkeys(("int8", "int4"), GPU_PRODUCT["int8"])
"""And of the head beside them, where it does not. A tied embedding stays dense, and is then held besides."""


def num_parameters(config: ModelConfig) -> int:
    """Every distinct parameter; a tied embedding counts once."""
    return _embedding(config) * (1 if config.tie_word_embeddings else 2) + _other_than_embedding(config)


def decode_weight_bytes(
    config: ModelConfig,
    bytes_per_parameter: float = 2.0,
    product_bytes: float | None = None,
    head_bytes: float | None = None,
) -> int:
    """Weight bytes that one decode step reads: all layers and the head once; an embedding lookup reads next to none.

    `product_bytes` and `head_bytes`: a weight of the layers' products, and of the head, scales included, where it is
    not like the others.
    """
    head = bytes_per_parameter if head_bytes is None else head_bytes
    read = int(_embedding(config) * head + _other_than_embedding(config) * bytes_per_parameter)
    return read + _difference(config, bytes_per_parameter, product_bytes)


def weight_bytes(
    config: ModelConfig,
    bytes_per_parameter: float = 2.0,
    product_bytes: float | None = None,
    head_bytes: float | None = None,
) -> int:
    """Bytes that the weights take in memory; `product_bytes` and `head_bytes` as in `decode_weight_bytes`.

    A head of another width is held beside the embedding, tied or not.
    """
    if head_bytes is None and config.tie_word_embeddings:
        return decode_weight_bytes(config, bytes_per_parameter, product_bytes)
    embedding = int(_embedding(config) * bytes_per_parameter)
    return embedding + decode_weight_bytes(config, bytes_per_parameter, product_bytes, head_bytes)


def kv_bytes_per_token(config: ModelConfig, bytes_per_element: int = 2) -> int:
    """Bytes of keys and values that one token adds to the cache, all layers."""
    return 2 * config.num_layers * config.kv_size * bytes_per_element


def layer_flops(config: ModelConfig) -> int:
    """FLOPs of all the layers' products for one token, without attention and head."""
    return 2 * config.num_layers * _layer_products(config)


def head_flops(config: ModelConfig) -> int:
    """FLOPs of one row of logits."""
    return 2 * _embedding(config)


def attention_flops(config: ModelConfig, new_tokens: int, context: int) -> int:
    """FLOPs of attention for `new_tokens` that end a context of `context` tokens, all layers, causal."""
    first = context - new_tokens
    pairs = new_tokens * first + new_tokens * new_tokens // 2 if new_tokens > 1 else context
    return 4 * config.num_layers * config.q_size * pairs


def prefill_flops(config: ModelConfig, num_tokens: int) -> int:
    """FLOPs of a whole prompt of n tokens; its one row of logits is left out, as next to nothing."""
    return layer_flops(config) * num_tokens + attention_flops(config, num_tokens, num_tokens)


def decode_flops(config: ModelConfig, context: int) -> int:
    """FLOPs of one token that is decoded with `context` tokens in the cache, logits included."""
    return layer_flops(config) + head_flops(config) + attention_flops(config, 1, context)


def _difference(config: ModelConfig, bytes_per_parameter: float, product_bytes: float | None) -> int:
    """Bytes that products of another width add."""
    if product_bytes is None:
        return 0
    return round(config.num_layers * _layer_products(config) * (product_bytes - bytes_per_parameter))


def _embedding(config: ModelConfig) -> int:
    return config.vocab_size * config.hidden_size


def _layer_products(config: ModelConfig) -> int:
    """Weights that one token is multiplied with in one layer."""
    attention = config.hidden_size * (2 * config.q_size + 2 * config.kv_size)
    return attention + 3 * config.hidden_size * config.intermediate_size


def _other_than_embedding(config: ModelConfig) -> int:
    vectors = 2 * config.hidden_size  # the two norms
    if config.qk_norm:
        vectors += 2 * config.head_dim
    if config.qkv_bias:
        vectors += config.q_size + 2 * config.kv_size
    if config.o_bias:
        vectors += config.hidden_size
    if config.mlp_bias:
        vectors += 2 * config.intermediate_size + config.hidden_size
    return config.num_layers * (_layer_products(config) + vectors) + config.hidden_size
