"""What a checkpoint declares of its KV cache, and whether `--kv-cache-dtype` makes an FP8 one of it. No torch here.

Source: `kv_cache_scheme` in the `quantization_config` of compressed-tensors (QuantizationArgs), and the word "static"
that earlier FP8 tools wrote there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firsttoken.errors import ConfigError, ModelError


@dataclass(frozen=True, slots=True)
class KVScheme:
    """A declared form of keys and values. Any but E4M3 with fixed scales a layer or head has an `objection`."""

    objection: str = ""  # what cannot be honoured: "dynamic scales"


def parse_kv_scheme(quantization: Mapping[str, Any] | None) -> KVScheme | None:
    """Of a `quantization_config`; None where it declares none. Raises ModelError where it cannot be read."""
    raw = (quantization or {}).get("kv_cache_scheme")
    if raw is None:
        return None
    if isinstance(raw, str):
        return KVScheme("" if raw == "static" else f"{raw!r}")
    if not isinstance(raw, Mapping):
        raise ModelError(f"quantization_config needs kv_cache_scheme as an object, not {raw!r}.")
    kind, bits, strategy = raw.get("type", "int"), raw.get("num_bits", 8), raw.get("strategy") or "tensor"
    if (kind, bits) != ("float", 8):
        return KVScheme(f"{kind}s of {bits} bits")
    if raw.get("dynamic"):
        return KVScheme("dynamic scales")
    if not raw.get("symmetric", True):
        return KVScheme("zero points")
    return KVScheme("" if strategy in ("tensor", "attn_head") else f"scales by the strategy {strategy!r}")


def wants_fp8(asked: str, scheme: KVScheme | None, *, kernels: bool) -> bool:
    """Whether the KV cache holds E4M3 numbers under `--kv-cache-dtype asked`.

    `auto` follows the checkpoint where `kernels` read FP8; elsewhere it would cost both time and exactness. Raises
    ConfigError for a declaration that cannot be honoured, unless `none` says to leave it.
    """
    if scheme is not None and scheme.objection and asked != "none":
        raise ConfigError(
            f"The checkpoint's kv_cache_scheme asks for {scheme.objection}, but a KV cache is kept in FP8 with fixed "
            "scales alone; --kv-cache-dtype none runs its weights with keys and values in the form of activations."
        )
    return asked in ("fp8", "fp8_e4m3") or (asked == "auto" and scheme is not None and kernels)
