"""What one step of the served model must read and compute: by its config, a GGUF file, or the server's own word."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from firsttoken.errors import ConfigError, ModelError
from firsttoken.model import cost
from firsttoken.model.config import ModelConfig, load_config, parse_config
from firsttoken.model.gguf_header import gguf_read_bytes
from firsttoken.model.quantization import parse_quantization

_ELEMENT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCosts:
    """Bytes and FLOPs. Without a config only memory is known."""

    weight_bytes: float  # read once a step, however many sequences run
    kv_bytes_per_token: float = 0.0  # 0: unknown, and then left out of every bound
    config: ModelConfig | None = None  # what FLOPs come from
    origin: str = ""  # where this is known from, for the reader

    def prefill_bytes(self, cached: int) -> float:
        return self.weight_bytes + self.kv_bytes_per_token * cached

    def prefill_flops(self, new: int, context: int) -> float | None:
        """`new` prompt tokens that end a prompt of `context`, and one row of logits."""
        if self.config is None:
            return None
        products = cost.layer_flops(self.config) * new + cost.head_flops(self.config)
        return float(products + cost.attention_flops(self.config, new, context))

    def decode_flops(self, context: float) -> float | None:
        """One token over `context` tokens."""
        return None if self.config is None else float(cost.decode_flops(self.config, round(context)))


def read_model_costs(path: Path, kv_element_bytes: float = 2.0) -> ModelCosts:
    """Costs of a model folder, a config.json or a .gguf file. Raises ConfigError or ModelError in one sentence.

    Quantised checkpoints count what their config promises (fp8: a byte a weight; AWQ and GPTQ: their bits), embedding
    and head two bytes a weight.
    """
    path = path.expanduser()
    if path.suffix == ".gguf":
        config = load_config(path)
        weights = float(gguf_read_bytes(path))
    else:
        raw = _read_json(path / "config.json" if path.is_dir() else path)
        quantised = raw.pop("quantization_config", None)
        config = parse_config(raw)
        weights = _weights(config, None if quantised is None else _bytes_of(quantised))
    kv = 2 * config.num_layers * config.kv_size * kv_element_bytes
    return ModelCosts(weight_bytes=weights, kv_bytes_per_token=kv, config=config, origin=path.name)


def with_card(costs: ModelCosts | None, card: Mapping[str, Any]) -> ModelCosts | None:
    """Costs with what the server itself says in /v1/models, as firsttoken does; it knows its weights' form best."""
    weights, kv = _number(card.get("weight_bytes")), _number(card.get("kv_bytes_per_token"))
    if weights is None:
        return costs
    if costs is None:
        return ModelCosts(weight_bytes=weights, kv_bytes_per_token=kv or 0.0, origin="the server's own numbers")
    return replace(
        costs,
        weight_bytes=weights,
        kv_bytes_per_token=kv or costs.kv_bytes_per_token,
        origin=f"{costs.origin} and the server's own numbers",
    )


def find_model_costs(
    model: str, card: Mapping[str, Any], given: ModelCosts | None = None, kv_element_bytes: float = 2.0
) -> ModelCosts | str:
    """Costs of the model a server serves, or one sentence that says why they are not known: nothing is guessed.

    In this order: those of a `given` config, those of `model` where it is a local path; the card's own numbers go
    before both.
    """
    found = given
    path = Path(model).expanduser()
    if given is None and path.exists():
        with suppress(ConfigError, ModelError):  # a name can happen to be the path of something else
            found = read_model_costs(path, kv_element_bytes)
    known = with_card(found, card)
    if known is None:
        return f"No ceilings: the config of {model} is not here; name its config.json or folder with --model-config."
    return known


def _weights(config: ModelConfig, bytes_a_weight: float | None) -> float:
    plain = _ELEMENT_BYTES[config.dtype]
    if bytes_a_weight is None:
        return float(cost.decode_weight_bytes(config, plain))
    head = cost.head_flops(config) // 2  # its weights
    return head * plain + (cost.decode_weight_bytes(config, 1.0) - head) * bytes_a_weight


def _bytes_of(quantised: Mapping[str, Any]) -> float:
    """Bytes a weight, scales left out: a bound must not promise too little speed."""
    method = quantised.get("quant_method")
    bits = quantised.get("bits", quantised.get("w_bit"))
    if method == "fp8":
        return 1.0
    if method in ("awq", "gptq") and isinstance(bits, int):
        return bits / 8
    if method == "compressed-tensors" and (known := parse_quantization(quantised)) is not None:
        return known.bits / 8
    raise ConfigError(f"The bytes of weights quantised with {method!r} are not known, so no ceiling can be given.")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(
            f"There is no model config {path}; name a config.json, a model folder or a .gguf file."
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a model's config ({error}).") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is not a model's config: it must hold a JSON object.")
    return content


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number > 0 else None
