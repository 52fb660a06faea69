"""What a knob should gain, before it is measured: by the roofline, and by the baseline's own prefill rate.

A prediction says by how much the objective's best possible time changes; it is no promise that the server reaches it.
Where nothing known here bears on a knob (kernel launches, threads), there is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from firsttoken.bench.model_costs import ModelCosts
from firsttoken.bench.roofline import Roofline
from firsttoken.model.cost import decode_weight_bytes, kv_bytes_per_token
from firsttoken.tune.arms import Value
from firsttoken.tune.objective import Objective
from firsttoken.tune.probe import Probe
from firsttoken.tune.space import Knob

_NOTHING = 0.002  # gains below this are none


@dataclass(frozen=True, slots=True)
class Prediction:
    """A gain as a logarithm, or None where it is not known; `text` says why. `skip`: it cannot matter."""

    gain: float | None
    text: str
    skip: bool = False


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds of a request's parts."""

    ttft: float
    tpot: float

    def gain(self, other: _Times, objective: Objective, output: float) -> float:
        """Of the other over this one."""
        if objective == "tpot":
            return math.log(self.tpot / other.tpot)
        if objective == "ttft_p99":
            return math.log(self.ttft / other.ttft)
        each = max(output - 1, 0.0)
        return math.log((self.ttft + each * self.tpot) / (other.ttft + each * other.tpot))


def predict(knob: Knob, value: Value, before: Value | None, probe: Probe, objective: Objective) -> Prediction:
    """Of `value` over `before`, which is None where the engine chooses and nobody knows what."""
    match knob.affects:
        case "prefix":
            return _prefix(bool(value), before, probe, objective)
        case "batch":
            return _batch(value, before, probe)
        case "chunk":
            return _chunk(value, before, probe)
        case "step":
            alone = probe.most_streams <= 1
            return _flat("nothing decodes beside a prompt: one request at a time") if alone else _unknown("scheduling")
        case "workers":
            few = probe.most_streams <= 4
            text = f"one process serves {probe.most_streams} streams with ease"
            return _flat(text) if few else _unknown("how long HTTP takes")
        case "weights" | "kv":
            return _bytes(knob, value, before, probe, objective)
        case "block":
            return Prediction(0.0, "neither bytes nor products change")
        case "launches":
            return _unknown("the time between kernels")
        case "threads":
            return _unknown("how far products scale over cores")


def _flat(text: str) -> Prediction:
    return Prediction(0.0, text, skip=True)


def _unknown(what: str) -> Prediction:
    return Prediction(None, f"not predicted: a roofline does not tell {what}")


def _prefix(on: bool, before: Value | None, probe: Probe, objective: Objective) -> Prediction:
    reused = max(probe.repeated, float(probe.shared), probe.cached)
    if reused < 1:
        return _flat("no request begins as an earlier one did")
    was = before if isinstance(before, bool) else probe.cached > 0
    if was == on:
        return _flat("it is so already")
    # Most of the first token's wait is computing the tokens that the cache does not hold.
    cached_before = probe.cached if was else 0.0
    cached_then = reused if on else 0.0
    left = max(probe.prompt - cached_then, 1.0) / max(probe.prompt - cached_before, 1.0)
    now = _Times(probe.ttft, probe.tpot)
    then = _Times(probe.ttft * left, probe.tpot)
    text = f"{reused:,.0f} of {probe.prompt:,.0f} prompt tokens need not be computed again"
    return Prediction(now.gain(then, objective, probe.output), text if on else f"without it, not so: {text}")


def _batch(value: Value, before: Value | None, probe: Probe) -> Prediction:
    enough = isinstance(value, int) and value >= probe.most_streams
    if enough and (before is None or (isinstance(before, int) and before >= probe.most_streams)):
        return _flat(f"never more than {probe.most_streams} requests at once")
    return _unknown("how requests wait")


def _chunk(value: Value, before: Value | None, probe: Probe) -> Prediction:
    if not isinstance(value, int) or not isinstance(before, int):
        return _unknown("the engine's own budget")
    new = max(probe.longest_prompt, 1)
    if min(value, before) >= new * max(probe.most_streams, 1):
        return _flat(f"prompts of {new:,} tokens are one step either way")
    steps = math.ceil(new / value), math.ceil(new / before)
    return Prediction(None, f"not predicted: {steps[0]} steps a prompt instead of {steps[1]}")


def _bytes(knob: Knob, value: Value, before: Value | None, probe: Probe, objective: Objective) -> Prediction:
    roofline = probe.roofline()
    if roofline is None:
        return _unknown("bytes of a model whose config is not here")
    costs = roofline.costs
    own = _own_bytes(knob, before, roofline)
    if own is None or str(value) not in knob.bytes:
        return _unknown("the bytes of this form")
    ratio = knob.bytes[str(value)] / own
    if knob.affects == "weights":
        changed = replace(costs, weight_bytes=costs.weight_bytes * ratio)
    else:
        changed = replace(costs, kv_bytes_per_token=costs.kv_bytes_per_token * ratio)
    now, then = (_times(replace(roofline, costs=one), probe) for one in (costs, changed))
    gain = now.gain(then, objective, probe.output)
    text = f"a step reads {_read(changed, probe) / _read(costs, probe):.0%} of the bytes"
    if abs(gain) < _NOTHING:
        return _flat(f"{text}, which is no gain in this objective")
    return Prediction(gain, text)


def _own_bytes(knob: Knob, before: Value | None, roofline: Roofline) -> float | None:
    """Bytes of an element in the baseline."""
    if before is not None and str(before) in knob.bytes:
        return knob.bytes[str(before)]
    costs = roofline.costs
    if costs.config is None:
        return None
    if knob.affects == "weights":
        return costs.weight_bytes / decode_weight_bytes(costs.config, 1.0)
    return costs.kv_bytes_per_token / kv_bytes_per_token(costs.config, 1)


def _context(probe: Probe) -> float:
    return probe.prompt + probe.output / 2


def _read(costs: ModelCosts, probe: Probe) -> float:
    return costs.weight_bytes + probe.streams * _context(probe) * costs.kv_bytes_per_token


def _times(roofline: Roofline, probe: Probe) -> _Times:
    step, _ = roofline.step(probe.streams, _context(probe))
    ttft = probe.ttft
    if roofline.knows_prefill:
        ttft, _ = roofline.prefill(round(probe.prompt), round(probe.cached))
    return _Times(max(ttft, 1e-9), max(step, 1e-9))


def score(predicted: Mapping[str, float], measured: Mapping[str, float], margin: float) -> tuple[int, int, float]:
    """How good predictions were: of how many the sign (or the absence) was right, of how many, and the mean error."""
    both = [(gain, measured[name]) for name, gain in predicted.items() if name in measured]
    right = sum(_side(a, margin) == _side(b, margin) for a, b in both)
    error = sum(abs(a - b) for a, b in both) / len(both) if both else 0.0
    return right, len(both), error


def _side(gain: float, margin: float) -> int:
    return 0 if abs(gain) <= margin else (1 if gain > 0 else -1)
