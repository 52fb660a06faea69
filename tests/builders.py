"""Tiny models written to disk in well under a second: config, random weights, tokeniser and chat template."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

Kind = Literal["qwen3", "qwen2", "llama"]

ARCHITECTURES: dict[str, str] = {
    "qwen3": "Qwen3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "llama": "LlamaForCausalLM",
}
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCAB_SIZE = 512  # rows of the output matrix: more than the tokeniser has ids, as in Qwen3

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_CORPUS = (
    "The quick brown fox jumps over the lazy dog, and then the dog sleeps while the fox thinks about the other dog.",
    "A model reads the prompt, writes the first token, then the second token and the third token.",
    "def add(left, right):\n    return left + right\n\nfor index in range(10):\n    print(add(index, index))\n",
    "今天天气很好，我们一起去公园吧。你好，世界！请问今天的天气怎么样？",
    '{"name": "value", "list": [1, 2, 3], "other": {"name": "value"}}',
)


def tiny_config(kind: Kind = "qwen3", *, tied: bool = False, **overrides: Any) -> dict[str, Any]:
    """The content of a config.json: two layers, four heads over two KV heads, `VOCAB_SIZE` ids."""
    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": kind,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "vocab_size": VOCAB_SIZE,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": tied,
        "hidden_act": "silu",
        "torch_dtype": "float32",
    }
    if kind == "qwen3":
        config["head_dim"] = 32  # as in Qwen3-4B, heads x head_dim is not the hidden size
        config["attention_bias"] = False
    return config | overrides


def tiny_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Random float32 weights under Hugging Face's names, scaled so that logits are well apart."""
    hidden, inter, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    kind = config["model_type"]
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}

    def add(name: str, *shape: int, mean: float = 0.0, std: float | None = None) -> None:
        spread = 1 / math.sqrt(shape[-1]) if std is None else std
        tensors[name] = torch.randn(shape, generator=generator) * spread + mean

    def add_linear(name: str, out: int, fan_in: int, bias: bool) -> None:
        add(f"{name}.weight", out, fan_in)
        if bias:
            add(f"{name}.bias", out, std=0.3)

    qkv_bias = kind == "qwen2" or bool(config.get("attention_bias"))
    o_bias = kind != "qwen2" and bool(config.get("attention_bias"))
    mlp_bias = kind == "llama" and bool(config.get("mlp_bias"))
    add("model.embed_tokens.weight", vocab, hidden, std=0.5)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        add_linear(f"{layer}.self_attn.q_proj", heads * head_dim, hidden, qkv_bias)
        add_linear(f"{layer}.self_attn.k_proj", kv_heads * head_dim, hidden, qkv_bias)
        add_linear(f"{layer}.self_attn.v_proj", kv_heads * head_dim, hidden, qkv_bias)
        add_linear(f"{layer}.self_attn.o_proj", hidden, heads * head_dim, o_bias)
        if kind == "qwen3":
            add(f"{layer}.self_attn.q_norm.weight", head_dim, mean=1.0, std=0.2)
            add(f"{layer}.self_attn.k_norm.weight", head_dim, mean=1.0, std=0.2)
        add_linear(f"{layer}.mlp.gate_proj", inter, hidden, mlp_bias)
        add_linear(f"{layer}.mlp.up_proj", inter, hidden, mlp_bias)
        add_linear(f"{layer}.mlp.down_proj", hidden, inter, mlp_bias)
        add(f"{layer}.input_layernorm.weight", hidden, mean=1.0, std=0.2)
        add(f"{layer}.post_attention_layernorm.weight", hidden, mean=1.0, std=0.2)
    add("model.norm.weight", hidden, mean=1.0, std=0.2)
    if not config["tie_word_embeddings"]:
        add("lm_head.weight", vocab, hidden, std=0.5)
    return tensors


def write_checkpoint(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], *, shards: int = 1) -> Path:
    """config.json and safetensors, in one file or in `shards` files with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", config)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    weight_map: dict[str, str] = {}
    names = sorted(tensors)
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        mine = names[shard::shards]
        save_file({name: tensors[name] for name in mine}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(mine, file)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": weight_map})
    return folder


def tiny_tokenizer() -> Tokenizer:
    """Byte-level BPE with a few dozen merges; the special tokens have the last ids, as in Qwen."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=380, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL_TOKENS])
    return tokenizer


def write_tokenizer(folder: Path, tokenizer: Tokenizer | None = None, *, chat_template: str = CHAT_TEMPLATE) -> Path:
    """tokenizer.json and tokenizer_config.json, with a ChatML template."""
    folder.mkdir(parents=True, exist_ok=True)
    (tokenizer or tiny_tokenizer()).save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "add_bos_token": False,
            "model_max_length": 1024,
            "chat_template": chat_template,
        },
    )
    return folder


def tiny_model_folder(
    folder: Path,
    kind: Kind = "qwen3",
    *,
    tied: bool = False,
    seed: int = 0,
    generation: dict[str, Any] | None = None,
    **overrides: Any,
) -> Path:
    """A whole model folder: `overrides` go into config.json, `generation` into generation_config.json."""
    tokenizer = tiny_tokenizer()
    eos = [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]
    config = tiny_config(kind, tied=tied, **({"eos_token_id": eos[0]} | overrides))
    write_checkpoint(folder, config, tiny_tensors(config, seed))
    write_tokenizer(folder, tokenizer)
    _write_json(folder / "generation_config.json", {"eos_token_id": eos, **(generation or {})})
    return folder


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
