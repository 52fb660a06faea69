"""What a model is: shapes and switches read from its config.json, or from a GGUF file. No torch here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from firsttoken.errors import ModelError
from firsttoken.model.kv_scheme import KVScheme, parse_kv_scheme
from firsttoken.model.quantization import Quantization, parse_quantization
from firsttoken.model.rope_scaling import normalise_rope, scaled_context

SUPPORTED = ("Qwen3ForCausalLM", "Qwen2ForCausalLM", "LlamaForCausalLM")
_SAMPLING_KEYS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_DTYPES = ("float32", "bfloat16", "float16")


KeptKinds = tuple[str | None, str | None, str | None, str | None]
"""Of the weights qkv, o, gate and up, and down, as `QuantLinear.kind` names them; None where one is dense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A dense decoder: every layer alike, RMSNorm, GQA, RoPE, SwiGLU."""

    architecture: str  # one of SUPPORTED
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int  # rows of the output matrix; the tokeniser may have fewer ids
    rms_norm_eps: float
    qk_norm: bool = False  # RMSNorm of each query and key head
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] = field(default_factory=lambda: {"rope_type": "default"})  # normal form
    max_position_embeddings: int = 2048  # as the config says, before scaling
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()  # config and generation_config together
    dtype: str = "bfloat16"  # the checkpoint's own
    default_sampling: dict[str, float] = field(default_factory=dict)  # generation_config's
    quantization: Quantization | None = None  # of a safetensors checkpoint's linears
    kv_scheme: KVScheme | None = None  # what it declares of its KV cache
    kept_bytes: float | None = None  # bytes a weight of the layers' products, in the file's own bits; None: as `dtype`
    # Of a GGUF file: what its layers are in, each combination once, the commonest first, and its head
    kept_kinds: tuple[KeptKinds, ...] = ()
    kept_head: str | None = None  # None: not in blocks that are kept

    @property
    def context_length(self) -> int:
        """The longest context in tokens that RoPE, as scaled, is made for."""
        return scaled_context(self.rope_scaling, self.max_position_embeddings)

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    def with_rope(self, override: Mapping[str, Any] | None) -> ModelConfig:
        """The same model under another RoPE scaling: None keeps the model's own, {} turns it off.

        Raises ModelError where the override is not one that is supported.
        """
        if override is None:
            return self
        theta, scaling = normalise_rope(override, self.max_position_embeddings)
        return replace(self, rope_theta=self.rope_theta if theta is None else theta, rope_scaling=scaling)


def load_config(path: str | Path) -> ModelConfig:
    """Reads a model folder or one .gguf file.

    Raises ModelError, in one sentence, where it is not a model that can be run.
    """
    path = Path(path)
    if path.is_file():
        from firsttoken.model.gguf_config import gguf_config  # only GGUF files pay for its import

        return gguf_config(path)
    if not path.is_dir():
        raise ModelError(f"There is no model at {path}.")
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} has no config.json, so it is not a model folder.")
    generation = path / "generation_config.json"
    return parse_config(_read_json(path / "config.json"), _read_json(generation) if generation.is_file() else {})


def parse_config(raw: Mapping[str, Any], generation: Mapping[str, Any] | None = None) -> ModelConfig:
    """The content of a config.json and of a generation_config.json as a ModelConfig. Raises ModelError."""
    generation = generation or {}
    architecture = _architecture(raw)
    _refuse_unsupported(raw)
    hidden, heads = _positive(raw, "hidden_size"), _positive(raw, "num_attention_heads")
    qwen3, qwen2 = architecture == "Qwen3ForCausalLM", architecture == "Qwen2ForCausalLM"
    kv_heads = _positive(raw, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise ModelError(f"The model's config has {heads} query heads over {kv_heads} KV heads, which do not divide.")
    max_positions = _positive(raw, "max_position_embeddings", 2048 if architecture == "LlamaForCausalLM" else 32768)
    theta, scaling = _rope(raw, max_positions)
    quantization = parse_quantization(raw.get("quantization_config"))
    attention_bias = bool(raw.get("attention_bias"))
    return ModelConfig(
        architecture=architecture,
        hidden_size=hidden,
        num_layers=_positive(raw, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=_positive(raw, "head_dim", 128 if qwen3 else hidden // heads),
        intermediate_size=_positive(raw, "intermediate_size"),
        vocab_size=_positive(raw, "vocab_size"),
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        qk_norm=qwen3,
        qkv_bias=qwen2 or attention_bias,
        o_bias=attention_bias and not qwen2,
        mlp_bias=architecture == "LlamaForCausalLM" and bool(raw.get("mlp_bias")),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        rope_theta=theta,
        rope_scaling=scaling,
        max_position_embeddings=max_positions,
        bos_token_id=_first_id(generation.get("bos_token_id"), raw.get("bos_token_id")),
        eos_token_ids=_ids(generation.get("eos_token_id"), raw.get("eos_token_id")),
        dtype=_dtype(raw.get("dtype") or raw.get("torch_dtype")),
        default_sampling=default_sampling(generation),
        quantization=quantization,
        kv_scheme=parse_kv_scheme(raw.get("quantization_config")),
        kept_bytes=None if quantization is None else quantization.bytes_per_weight,
    )


def default_sampling(generation: Mapping[str, Any]) -> dict[str, float]:
    """Sampling defaults of a generation_config; `do_sample: false` means greedy, so a temperature of 0."""
    defaults: dict[str, float] = {}
    for key in _SAMPLING_KEYS:
        value = generation.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ModelError(f"The model's generation_config.json needs {key!r} as a number, not {value!r}.")
        defaults[key] = float(value)
    if generation.get("do_sample") is False:
        return {key: value for key, value in defaults.items() if key == "repetition_penalty"} | {"temperature": 0.0}
    return defaults


def _architecture(raw: Mapping[str, Any]) -> str:
    names = raw.get("architectures") or [raw.get("model_type", "unknown")]
    for name in names:
        if name in SUPPORTED:
            return str(name)
    raise ModelError(f"The architecture {names[0]} is not supported; supported are {', '.join(SUPPORTED)}.")


def _refuse_unsupported(raw: Mapping[str, Any]) -> None:
    """Refuses what would silently change the answers if it were ignored."""
    if raw.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ModelError(f"The activation {raw['hidden_act']!r} is not supported; only 'silu' is.")
    window, layers = raw.get("sliding_window"), int(raw.get("num_hidden_layers") or 0)
    if not raw.get("use_sliding_window") or window is None:
        return
    types = raw.get("layer_types")
    slides = "sliding_attention" in types if types else int(raw.get("max_window_layers", 28)) < layers
    if slides and window < int(raw.get("max_position_embeddings") or 32768):
        raise ModelError(
            f"Sliding-window attention (use_sliding_window, {window} tokens) is not supported; set "
            "use_sliding_window to false in config.json to run full attention."
        )


def _rope(raw: Mapping[str, Any], max_positions: int) -> tuple[float, dict[str, Any]]:
    settings = dict(raw.get("rope_scaling") or raw.get("rope_parameters") or {})
    if raw.get("original_max_position_embeddings") is not None:
        settings["original_max_position_embeddings"] = raw["original_max_position_embeddings"]
    if raw.get("partial_rotary_factor") is not None:
        settings.setdefault("partial_rotary_factor", raw["partial_rotary_factor"])
    theta, scaling = normalise_rope(settings, max_positions)
    return float(raw.get("rope_theta") or 10000.0) if theta is None else theta, scaling


def _positive(raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ModelError(f"The model's config.json needs {key!r} as a positive integer, not {value!r}.")
    return value


def _ids(*sources: Any) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for source in sources:
        if source is not None:
            found |= dict.fromkeys(source if isinstance(source, list) else [source])
    return tuple(found)


def _first_id(*sources: Any) -> int | None:
    ids = _ids(*sources)
    return ids[0] if ids else None


def _dtype(name: Any) -> str:
    text = str(name).removeprefix("torch.")
    return text if text in _DTYPES else "bfloat16"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} must hold a JSON object.")
    return content
