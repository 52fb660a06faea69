"""Which tensors a decoder has, under Hugging Face's names. No torch here."""

from __future__ import annotations

from firsttoken.model.config import ModelConfig

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor's name and shape, linears as [out, in]; no head where it is tied to the embedding."""
    hidden, inter = config.hidden_size, config.intermediate_size
    linears = (  # name, out, in, bias
        ("self_attn.q_proj", config.q_size, hidden, config.qkv_bias),
        ("self_attn.k_proj", config.kv_size, hidden, config.qkv_bias),
        ("self_attn.v_proj", config.kv_size, hidden, config.qkv_bias),
        ("self_attn.o_proj", hidden, config.q_size, config.o_bias),
        ("mlp.gate_proj", inter, hidden, config.mlp_bias),
        ("mlp.up_proj", inter, hidden, config.mlp_bias),
        ("mlp.down_proj", hidden, inter, config.mlp_bias),
    )
    tensors: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocab_size, hidden), FINAL_NORM: (hidden,)}
    if not config.tie_word_embeddings:
        tensors[HEAD] = (config.vocab_size, hidden)
    for i in range(config.num_layers):
        layer = f"model.layers.{i}"
        for name, out, fan_in, bias in linears:
            tensors[f"{layer}.{name}.weight"] = (out, fan_in)
            if bias:
                tensors[f"{layer}.{name}.bias"] = (out,)
        tensors[f"{layer}.input_layernorm.weight"] = (hidden,)
        tensors[f"{layer}.post_attention_layernorm.weight"] = (hidden,)
        if config.qk_norm:
            tensors[f"{layer}.self_attn.q_norm.weight"] = (config.head_dim,)
            tensors[f"{layer}.self_attn.k_norm.weight"] = (config.head_dim,)
    return tensors


def named(names: list[str]) -> str:
    """The first few of many names, for an error's sentence."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
