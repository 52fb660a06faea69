"""RoPE settings as a config states them, in one normal form. No torch here.

A normal form is a dict whose "rope_type" is one of `ROPE_TYPES`, with every key that the type needs; "default" has no
other key. transformers 5 writes `rope_parameters` (theta inside), older files `rope_scaling` and `rope_theta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from firsttoken.errors import ModelError

ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3")

# llama.cpp stores llama3's result as one divisor a frequency: same numbers, no parameters left
FREQUENCY_FACTORS = "frequency_factors"

_NUMBERS: dict[str, tuple[str, ...]] = {  # keys a type must have as positive numbers
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
_OPTIONAL: dict[str, tuple[str, ...]] = {
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
}


def normalise_rope(raw: Mapping[str, Any] | None, max_positions: int) -> tuple[float | None, dict[str, Any]]:
    """The theta named inside `raw` (or None) and its scaling in normal form; None and {} mean no scaling.

    `max_positions` is the config's max_position_embeddings, which stands in for a missing original length, as in
    transformers. Raises ModelError, in one sentence, for a type or a value that is not supported.
    """
    settings = {key: value for key, value in (raw or {}).items() if value is not None}
    theta = settings.get("rope_theta")
    if theta is not None and not (_is_number(theta) and theta > 0):
        raise ModelError(f"RoPE's rope_theta must be a positive number, not {theta!r}.")
    kind = settings.get("rope_type", settings.get("type", "default"))
    if kind == "none":
        kind = "default"
    if kind not in ROPE_TYPES:
        raise ModelError(f"RoPE scaling of type {kind!r} is not supported; supported are {', '.join(ROPE_TYPES)}.")
    if float(settings.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ModelError("RoPE over a part of each head (partial_rotary_factor) is not supported.")
    if kind in ("yarn", "llama3"):
        settings.setdefault("original_max_position_embeddings", max_positions)
    if kind == "yarn" and "factor" not in settings:
        settings["factor"] = max_positions / settings["original_max_position_embeddings"]
    scaling: dict[str, Any] = {"rope_type": kind}
    for key in _NUMBERS[kind]:
        value = settings.get(key)
        if not (_is_number(value) and value > 0):
            raise ModelError(f"RoPE scaling of type {kind!r} needs {key!r} as a positive number, not {value!r}.")
        scaling[key] = value
    scaling |= {key: settings[key] for key in _OPTIONAL.get(kind, ()) if key in settings}
    if kind == "llama3" and scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
        raise ModelError("RoPE scaling of type 'llama3' needs high_freq_factor above low_freq_factor.")
    return (None if theta is None else float(theta)), scaling


def scaled_context(scaling: Mapping[str, Any], max_positions: int) -> int:
    """Tokens that the model takes once scaled: what vLLM derives too."""
    kind = scaling["rope_type"]
    if kind in ("linear", "dynamic"):
        return int(max_positions * scaling["factor"])
    if kind == "yarn":
        return max(max_positions, int(scaling["original_max_position_embeddings"] * scaling["factor"]))
    return max_positions


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
