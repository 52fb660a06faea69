"""GGUF files written for tests, from the same tiny models that `tests.builders` writes as safetensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def write_gguf(
    path: Path,
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    quantization: str = "F32",
    *,
    metadata: dict[str, int | float | str | None] | None = None,
    tokens: Sequence[str] = (),
    token_types: Sequence[int] = (),
    others: Mapping[str, str] | None = None,
) -> dict[str, Tensor]:
    """Writes the model with its matrices in `quantization`; returns what a reader should see, dequantised.

    `others`: parts of a matrix's name, and what it is in instead. `metadata` adds keys, or drops those whose value is
    None.
    """
    kind = config["model_type"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, kind)
    values: dict[str, int | float | str | None] = {
        f"{kind}.context_length": config["max_position_embeddings"],
        f"{kind}.embedding_length": config["hidden_size"],
        f"{kind}.block_count": config["num_hidden_layers"],
        f"{kind}.feed_forward_length": config["intermediate_size"],
        f"{kind}.attention.head_count": heads,
        f"{kind}.attention.head_count_kv": kv_heads,
        f"{kind}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{kind}.rope.freq_base": config["rope_theta"],
        f"{kind}.attention.key_length": config.get("head_dim"),
        f"{kind}.attention.value_length": config.get("head_dim"),
    }
    for key, value in (values | (metadata or {})).items():
        if isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif value is not None:
            writer.add_string(key, value)
    if tokens:
        writer.add_array("tokenizer.ggml.tokens", list(tokens))
    if token_types:
        writer.add_array("tokenizer.ggml.token_type", list(token_types))
    seen: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        per_head = heads if ".q_proj." in name else kv_heads if ".k_proj." in name else 0
        interleaved = kind == "llama" and per_head > 0
        stored = _interleave(tensor, per_head) if interleaved else tensor
        form = next((form for part, form in (others or {}).items() if part in name), quantization)
        written_as = gguf.GGMLQuantizationType[form if tensor.dim() == 2 else "F32"]
        data = gguf.quantize(stored.numpy(), written_as)
        writer.add_tensor(_gguf_name(name), data, raw_dtype=written_as)
        widened = torch.from_numpy(np.array(gguf.dequantize(data, written_as), dtype=np.float32)).view(tensor.shape)
        seen[name] = _separate(widened, per_head) if interleaved else widened
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return seen


def read_llama(path: Path, heads: int, kv_heads: int) -> dict[str, Tensor]:
    """A llama-architecture file's tensors under Hugging Face's names, by the `gguf` package's own reader."""
    modules = {theirs: ours for ours, theirs in _NAMES.items()}
    tensors: dict[str, Tensor] = {}
    for item in gguf.GGUFReader(path).tensors:
        shape = tuple(int(size) for size in reversed(item.shape))
        values = np.array(gguf.dequantize(item.data, item.tensor_type), dtype=np.float32)
        tensor = torch.from_numpy(values).view(shape)
        *layer, module, kind = str(item.name).rsplit(".", 2)
        if module in ("attn_q", "attn_k"):
            tensor = _separate(tensor, heads if module == "attn_q" else kv_heads)
        prefix = f"model.layers.{layer[0].removeprefix('blk.')}." if layer else ""
        tensors[f"{prefix}{modules[module]}.{kind}"] = tensor
    return tensors


def _gguf_name(name: str) -> str:
    if not name.startswith("model.layers."):
        module, _, kind = name.rpartition(".")
        return f"{_NAMES.get(module, module)}.{kind}"
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    module, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{_NAMES[module]}.{kind}"


def _interleave(tensor: Tensor, heads: int) -> Tensor:
    """As llama.cpp's converter does: a head's row i of the first half is followed by row i of the second."""
    out = torch.empty_like(tensor)
    size = tensor.shape[0] // heads
    for head in range(heads):
        for i in range(size // 2):
            out[head * size + 2 * i] = tensor[head * size + i]
            out[head * size + 2 * i + 1] = tensor[head * size + size // 2 + i]
    return out


def _separate(tensor: Tensor, heads: int) -> Tensor:
    out = torch.empty_like(tensor)
    size = tensor.shape[0] // heads
    for head in range(heads):
        for i in range(size // 2):
            out[head * size + i] = tensor[head * size + 2 * i]
            out[head * size + size // 2 + i] = tensor[head * size + 2 * i + 1]
    return out
