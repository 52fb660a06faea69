"""A GGUF file's metadata as a ModelConfig. No torch here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firsttoken.errors import ModelError
from firsttoken.model.config import KeptKinds, ModelConfig
from firsttoken.model.gguf_header import GGUFHeader
from firsttoken.model.rope_scaling import FREQUENCY_FACTORS, normalise_rope

ARCHITECTURES = {"qwen3": "Qwen3ForCausalLM", "qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}
_SAMPLING = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}
# What a model's card recommends and its GGUF file leaves out, by general.name. SmolLM2-135M-Instruct, the demo, babbles
# when it is sampled plainly.
_RECOMMENDED = {"Smollm2 135M 8k Lc100K Mix1 Ep2": {"temperature": 0.2, "top_p": 0.9}}
# Blocks that are kept: Q4_0, Q4_1 and Q8_0, as a `QuantLinear` of them calls itself, and bytes a weight
_KEPT = {2: ("int4-32", 18 / 32), 3: ("int4-32-offsets", 20 / 32), 8: ("int8-32", 34 / 32)}
_PRODUCTS = (("attn_q", "attn_k", "attn_v"), ("attn_output",), ("ffn_gate", "ffn_up"), ("ffn_down",))
_DTYPES = {0: "float32", 1: "float16"}  # of an unquantised file; everything else runs as bfloat16


def gguf_config(path: Path) -> ModelConfig:
    """Reads the metadata of one GGUF file. Raises ModelError, in one sentence, where it cannot be run."""
    with GGUFHeader(path) as header:
        return config_of(header)


def config_of(header: GGUFHeader) -> ModelConfig:
    """The config of an open GGUF file."""
    name = header.get("general.architecture")
    if name not in ARCHITECTURES:
        supported = ", ".join(ARCHITECTURES)
        raise ModelError(f"GGUF files of the architecture {name!r} are not supported; supported are {supported}.")
    if header.get(f"{name}.expert_count", 0):
        raise ModelError("Mixture-of-experts models are not supported; use a dense one.")
    if "token_embd.weight" not in header.tensors:
        raise ModelError(f"{header.path} holds no weights of a language model (token_embd.weight is missing).")
    hidden = _positive(header, f"{name}.embedding_length")
    heads = _positive(header, f"{name}.attention.head_count")
    max_positions = _positive(header, f"{name}.context_length")
    head_dim = header.get(f"{name}.attention.key_length", hidden // heads)
    rotated = header.get(f"{name}.rope.dimension_count", head_dim)
    if rotated != head_dim or header.get(f"{name}.attention.value_length", head_dim) != head_dim:
        raise ModelError("RoPE over a part of each head, or values of another size than keys, are not supported.")
    qkv_bias, tensors = "blk.0.attn_q.bias" in header.tensors, header.tensors
    layers = _positive(header, f"{name}.block_count")
    matrix_types = {tensor.ggml_type for tensor in tensors.values() if len(tensor.shape) == 2}
    return ModelConfig(
        architecture=ARCHITECTURES[name],
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=header.get(f"{name}.attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate_size=_positive(header, f"{name}.feed_forward_length"),
        vocab_size=tensors["token_embd.weight"].shape[0],
        rms_norm_eps=_as_written(header.get(f"{name}.attention.layer_norm_rms_epsilon", 1e-6)),
        qk_norm=name == "qwen3",
        qkv_bias=qkv_bias,
        o_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_gate.bias" in tensors,
        tie_word_embeddings="output.weight" not in tensors,
        rope_theta=_as_written(header.get(f"{name}.rope.freq_base", 10000.0)),
        rope_scaling=_scaling(header, name, max_positions),
        max_position_embeddings=max_positions,
        bos_token_id=header.get("tokenizer.ggml.bos_token_id"),
        eos_token_ids=_end_ids(header),
        dtype=_DTYPES.get(matrix_types.pop(), "bfloat16") if len(matrix_types) == 1 else "bfloat16",
        default_sampling=_sampling(header),
        kept_bytes=_kept_bytes(header),
        kept_kinds=_kept_kinds(header, layers),
        kept_head=_kept_kind(header, ("output.weight" if "output.weight" in tensors else "token_embd.weight",)),
    )


def _sampling(header: GGUFHeader) -> dict[str, float]:
    """The file's own defaults; for a model whose file has none and whose card recommends some, the card's."""
    own = {ours: float(header.get(key)) for key, ours in _SAMPLING.items() if key in header.metadata}
    return own or dict(_RECOMMENDED.get(header.metadata.get("general.name", ""), {}))


def _kept_bytes(header: GGUFHeader) -> float | None:
    """Mean bytes a weight of the layers' matrices where some are in blocks that are kept; the others take two."""
    layers = [tensor for tensor in header.tensors.values() if len(tensor.shape) == 2 and tensor.name.startswith("blk.")]
    if not any(tensor.ggml_type in _KEPT for tensor in layers):
        return None
    sizes = [math.prod(tensor.shape) for tensor in layers]
    kept = (size * _KEPT.get(tensor.ggml_type, ("", 2.0))[1] for size, tensor in zip(sizes, layers, strict=True))
    return sum(kept) / sum(sizes)


def _kept_kinds(header: GGUFHeader, layers: int) -> tuple[KeptKinds, ...]:
    """Many files hold some layers' weights in more bits than the others'."""
    found: Counter[KeptKinds] = Counter()
    for index in range(layers):
        qkv, o, gate_up, down = (
            _kept_kind(header, [f"blk.{index}.{part}.weight" for part in parts]) for parts in _PRODUCTS
        )
        found[qkv, o, gate_up, down] += 1
    kinds = tuple(kinds for kinds, _ in found.most_common())
    return kinds if any(map(any, kinds)) else ()


def _kept_kind(header: GGUFHeader, names: Sequence[str]) -> str | None:
    """What tensors that are multiplied as one weight are in: several types become dense."""
    types = {header.tensors[name].ggml_type if name in header.tensors else None for name in names}
    return next((_KEPT[each][0] for each in types if each in _KEPT), None) if len(types) == 1 else None


def _scaling(header: GGUFHeader, name: str, max_positions: int) -> dict[str, Any]:
    if "rope_freqs.weight" in header.tensors:
        return {"rope_type": FREQUENCY_FACTORS, "factors": tuple(header.floats("rope_freqs.weight"))}
    prefix = f"{name}.rope.scaling"
    raw: dict[str, Any] = {"rope_type": header.get(f"{prefix}.type", "none"), "factor": header.get(f"{prefix}.factor")}
    raw["original_max_position_embeddings"] = header.get(f"{prefix}.original_context_length")
    raw["beta_fast"] = header.get(f"{prefix}.yarn_beta_fast")
    raw["beta_slow"] = header.get(f"{prefix}.yarn_beta_slow")
    _, scaling = normalise_rope(raw, max_positions)
    return scaling


def _end_ids(header: GGUFHeader) -> tuple[int, ...]:
    ids = (header.get("tokenizer.ggml.eos_token_id"), header.get("tokenizer.ggml.eot_token_id"))
    return tuple(dict.fromkeys(token for token in ids if token is not None))


def _as_written(value: float) -> float:
    """The decimal that was rounded to float32 in the file: 1e-5, not 9.999999747e-06."""
    return float(f"{value:.7g}")


def _positive(header: GGUFHeader, key: str) -> int:
    value = header.get(key)
    if not isinstance(value, int) or value <= 0:
        raise ModelError(f"{header.path} needs {key!r} as a positive integer, not {value!r}.")
    return value
