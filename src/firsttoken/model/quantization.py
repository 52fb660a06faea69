"""How a checkpoint's weights are quantised, read from config.json's `quantization_config`. No torch here.

Each published way comes down to a form (fp8, int8, int4), the inputs that share a scale, and the tensors it is stored
in. Which modules are quantised is not read here: the tensors that are there say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from firsttoken.errors import ModelError

Layout = Literal["plain", "packed", "gptq", "gptq_v2", "awq"]
Form = Literal["fp8", "int8", "int4"]
_BITS: dict[Form, int] = {"fp8": 8, "int8": 8, "int4": 4}
_OTHERWISE = "use an FP8, AWQ, GPTQ or compressed-tensors version, a GGUF file or the unquantised safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """What `quantization_config` promises of the layers' products."""

    method: str  # as published: "fp8", "awq", "gptq", "compressed-tensors"
    layout: Layout  # plain: a `weight` of fp8 or int8; packed: compressed-tensors' words
    form: Form
    group: int  # inputs a scale; 0: a scale is that of a whole row or more
    rows: int = 1  # output rows a scale, where groups are blocks
    points: bool = False  # each scale has a zero point

    @property
    def bits(self) -> int:
        return _BITS[self.form]

    @property
    def bytes_per_weight(self) -> float:
        """Scales of two bytes a group and points of one included, or of four a block."""
        scale = 0.0 if not self.group else 4 / (self.group * self.rows) if self.rows > 1 else 2 / self.group
        return self.bits / 8 + scale + (1 / self.group if self.points and self.group else 0.0)


def parse_quantization(raw: Mapping[str, Any] | None) -> Quantization | None:
    """None for unquantised weights. Raises ModelError, in one sentence, for one that cannot be run."""
    if not raw:
        return None
    method = str(raw.get("quant_method", "unknown")).replace("_", "-")
    reader = _READERS.get(method)
    if reader is None:
        raise ModelError(f"Weights quantised with {method!r} are not supported; {_OTHERWISE}.")
    return reader(raw)


def _fp8(raw: Mapping[str, Any]) -> Quantization:
    if raw.get("fmt", "e4m3") not in ("e4m3", "float8_e4m3fn"):
        raise ModelError(f"FP8 weights are supported as e4m3, not {raw['fmt']!r}; {_OTHERWISE}.")
    block = raw.get("weight_block_size")
    if block is None:
        return Quantization(method="fp8", layout="plain", form="fp8", group=0)
    if not isinstance(block, list | tuple) or len(block) != 2:
        raise ModelError(f"quantization_config needs weight_block_size as two numbers, not {block!r}.")
    return Quantization(method="fp8", layout="plain", form="fp8", rows=_rows(block[0]), group=_group("fp8", block[1]))


def _awq(raw: Mapping[str, Any]) -> Quantization:
    version = str(raw.get("version", "gemm")).lower()
    if version != "gemm" or raw.get("bits", raw.get("w_bit", 4)) != 4:
        raise ModelError(
            f"AWQ weights are supported as version gemm of 4 bits, not {version} of {raw.get('bits')!r}; {_OTHERWISE}."
        )
    group = _group("AWQ", raw.get("group_size", raw.get("q_group_size", 128)))
    return Quantization(method="awq", layout="awq", form="int4", group=group, points=True)


def _gptq(raw: Mapping[str, Any]) -> Quantization:
    """With `desc_act` the inputs' groups may be in any order: the tensors say, so it is refused where they do."""
    group = _group("GPTQ", raw.get("group_size", 128))
    layout: Layout = "gptq_v2" if raw.get("checkpoint_format") == "gptq_v2" else "gptq"
    form = _integer_form("GPTQ", raw.get("bits"))
    return Quantization(method="gptq", layout=layout, form=form, group=group, points=not raw.get("sym", True))


def _compressed(raw: Mapping[str, Any]) -> Quantization | None:
    """compressed-tensors: one scheme for all the layers' products, or none where the KV cache alone is quantised."""
    groups = raw.get("config_groups")
    schemes = [each for each in groups.values() if isinstance(each, Mapping)] if isinstance(groups, Mapping) else []
    if raw.get("kv_cache_scheme") is not None:  # then a group may be of attention's inputs
        schemes = [each for each in schemes if each.get("weights") is not None]
        if not schemes:
            return None
    weights = [each.get("weights") for each in schemes]
    if not weights or not isinstance(weights[0], Mapping) or any(each != weights[0] for each in weights):
        raise ModelError(
            f"compressed-tensors weights are supported where all have one scheme in config_groups; {_OTHERWISE}."
        )
    scheme, method = weights[0], "compressed-tensors"
    kind, bits, strategy = scheme.get("type"), scheme.get("num_bits"), scheme.get("strategy")
    layout = _compressed_layout(raw.get("format"), schemes[0].get("format"))
    if kind == "float" and bits != 8:
        raise ModelError(f"compressed-tensors floats are supported with 8 bits, not {bits!r}; {_OTHERWISE}.")
    form: Form = "fp8" if kind == "float" else _integer_form(method, bits)
    if layout == "plain" and form == "int4":
        raise ModelError(f"compressed-tensors weights of 4 bits are supported as pack-quantized; {_OTHERWISE}.")
    points = not scheme.get("symmetric", True)
    if strategy in ("tensor", "channel"):
        return Quantization(method=method, layout=layout, form=form, group=0, points=points)
    if strategy == "group":
        group = _group(method, scheme.get("group_size"))
        return Quantization(method=method, layout=layout, form=form, group=group, points=points)
    block = scheme.get("block_structure")
    if strategy == "block" and isinstance(block, list | tuple) and len(block) == 2:
        rows, group = _rows(block[0]), _group(method, block[1])
        return Quantization(method=method, layout=layout, form=form, group=group, rows=rows, points=points)
    raise ModelError(f"compressed-tensors weights with the strategy {strategy!r} are not supported; {_OTHERWISE}.")


def _compressed_layout(*names: Any) -> Layout:
    name = next((each for each in names if each is not None and each != "mixed-precision"), None)
    if name == "pack-quantized":
        return "packed"
    if name in ("float-quantized", "int-quantized", "naive-quantized"):
        return "plain"
    raise ModelError(f"compressed-tensors weights in the format {name!r} are not supported; {_OTHERWISE}.")


def _integer_form(method: str, bits: Any) -> Form:
    if bits not in (4, 8):
        raise ModelError(f"{method} weights are supported with 4 or 8 bits, not {bits!r}; {_OTHERWISE}.")
    return "int4" if bits == 4 else "int8"


def _group(method: str, size: Any) -> int:
    if size == -1:
        return 0
    if not isinstance(size, int) or isinstance(size, bool) or size < 32 or size % 32:
        raise ModelError(f"{method} groups are supported as multiples of 32 inputs, not {size!r}; {_OTHERWISE}.")
    return size


def _rows(size: Any) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ModelError(f"quantization_config needs a block's rows as a positive number, not {size!r}.")
    return size


_READERS: dict[str, Callable[[Mapping[str, Any]], Quantization | None]] = {
    "fp8": _fp8,
    "awq": _awq,
    "gptq": _gptq,
    "compressed-tensors": _compressed,
}
