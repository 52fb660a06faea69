"""Which form the weights take: the factory that a placement asks for, and its words in the start-up summary."""

from __future__ import annotations

from dataclasses import replace

from firsttoken.config import EngineConfig
from firsttoken.engine.device import Placement
from firsttoken.errors import ConfigError
from firsttoken.kernels.cpu_forms import CpuLinear, CpuLinears
from firsttoken.kernels.cpu_ops import cpu_kernels
from firsttoken.kernels.quant_forms import HEAD_FORMS, QUANT_FORMS
from firsttoken.kernels.quant_linear import QuantLinear
from firsttoken.model.config import ModelConfig
from firsttoken.model.decoder import Decoder
from firsttoken.model.quant_linears import QuantLinears
from firsttoken.model.weights import LinearFactory


def make_linears(placement: Placement, model: ModelConfig, *, dummy: bool) -> LinearFactory | None:
    """None is dense in the placement's dtype."""
    if placement.device.type == "cpu" and (kernels := cpu_kernels()) is not None:
        assert placement.cpu_threads is not None
        kernels.set_threads(placement.cpu_threads)
    judged = placement.judged
    if placement.weights == "dense" and judged is None:
        return None
    if placement.device.type == "cuda" or judged is not None:
        rounded = judged or QUANT_FORMS.get(placement.weights)
        head = None if rounded is None else HEAD_FORMS.get(rounded)
        made = QuantLinears(placement.dtype, placement.device, rounded, head=head, widens=judged is not None)
        form = model.quantization
        if not dummy or form is None:
            return made
        return replace(made, rounded=form.form, group=form.group or None, rows=form.rows)  # random ones, likewise
    assert placement.weights != "fp8"
    assert placement.weights != "dense"
    return CpuLinears(cpu_kernels(), placement.weights)


def check_rounding(config: EngineConfig, model: ModelConfig) -> None:
    """Raises ConfigError where weights that are quantised already would be rounded again."""
    if config.quantization in ("fp8", "int8", "int4") and model.quantization is not None:
        raise ConfigError(
            f"{config.model} is quantised already ({model.quantization.method}), so --quantization "
            f"{config.quantization} would round it twice; leave it out, or give none to widen the weights."
        )


def describe_weights(decoder: Decoder, placement: Placement) -> str:
    """Which precision the weights are in, and why."""
    products = [part for x in decoder.layers for part in (x.qkv, x.o, x.gate_up, x.down)]
    bits = {part.bits for part in products if isinstance(part, CpuLinear)}
    forms = {_form(part) for part in products if isinstance(part, QuantLinear)}
    if forms:
        rounds = placement.head_bytes is not None and isinstance(decoder.head, QuantLinear)
        head = ", the head in int8" if rounds else ""
        return f"{' and '.join(sorted(forms))}{head}, {placement.why}"
    if not bits:
        return placement.why
    return f"{'- and '.join(str(b) for b in sorted(bits))}-bit weights, {placement.why}"


def _form(weight: QuantLinear) -> str:
    share = "row" if weight.group >= weight.in_features else f"{weight.group} inputs"
    if weight.rows > 1:
        share = f"{weight.rows} x {weight.group} weights"
    return f"{weight.form} weights with a scale for each {share}"
