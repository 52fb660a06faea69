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
from firsttoken.bench.words import Words
from firsttoken.chips import launched_as
from firsttoken.machine.launch_tables import measured_cards
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
    text: Words
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
            return _flat(_ALONE) if alone else _unknown(Words("scheduling", "调度"))
        case "workers":
            few = probe.most_streams <= 4
            streams = probe.most_streams
            text = Words(f"one process serves {streams} streams with ease", f"一个进程足以服务 {streams} 路请求")
            return _flat(text) if few else _unknown(Words("how long HTTP takes", "HTTP 处理的耗时"))
        case "weights" | "kv":
            return _bytes(knob, value, before, probe, objective)
        case "block":
            return Prediction(0.0, Words("neither bytes nor products change", "读取的字节和计算量都不变"))
        case "graphs":
            text = Words("one and two rows have graphs of their own", "一两行的步骤本来就有自己的 CUDA Graph")
            few = probe.most_streams <= 2
            return _flat(text) if few else _unknown(Words("what padding rows cost", "补齐行数的代价"))
        case "table":
            if launched_as(probe.card, measured_cards()) is not None:
                return _unknown(Words("how long kernels take", "内核的耗时"))
            text = Words("no launches were measured for this card", "没有为这张显卡测过启动参数")
            return _flat(text)
        case "launches":
            return _unknown(Words("the time between kernels", "内核之间的空隙"))
        case "threads":
            return _unknown(Words("how far products scale over cores", "矩阵乘在多核上的扩展"))


_ALONE = Words("nothing decodes beside a prompt: one request at a time", "每次只有一个请求，没有与提示词同时进行的解码")


def _flat(text: Words) -> Prediction:
    return Prediction(0.0, text, skip=True)


def _unknown(what: Words) -> Prediction:
    text = Words(f"not predicted: a roofline does not tell {what.en}", f"没有预测：性能上限模型不涉及{what.zh}")
    return Prediction(None, text)


def _prefix(on: bool, before: Value | None, probe: Probe, objective: Objective) -> Prediction:
    reused = max(probe.repeated, float(probe.shared), probe.cached)
    if reused < 1:
        return _flat(Words("no request begins as an earlier one did", "没有请求与之前的请求有相同开头"))
    was = before if isinstance(before, bool) else probe.cached > 0
    if was == on:
        return _flat(Words("it is so already", "现在已经如此"))
    # Most of the first token's wait is computing the tokens that the cache does not hold.
    cached_before = probe.cached if was else 0.0
    cached_then = reused if on else 0.0
    left = max(probe.prompt - cached_then, 1.0) / max(probe.prompt - cached_before, 1.0)
    now = _Times(probe.ttft, probe.tpot)
    then = _Times(probe.ttft * left, probe.tpot)
    en = f"{reused:,.0f} of {probe.prompt:,.0f} prompt tokens need not be computed again"
    zh = f"{probe.prompt:,.0f} 个提示词 token 中有 {reused:,.0f} 个不必重新计算"
    text = Words(en, zh) if on else Words(f"without it, not so: {en}", f"关闭后不再有：{zh}")
    return Prediction(now.gain(then, objective, probe.output), text)


def _batch(value: Value, before: Value | None, probe: Probe) -> Prediction:
    enough = isinstance(value, int) and value >= probe.most_streams
    if enough and (before is None or (isinstance(before, int) and before >= probe.most_streams)):
        most = probe.most_streams
        return _flat(Words(f"never more than {most} requests at once", f"同时最多只有 {most} 个请求"))
    return _unknown(Words("how requests wait", "请求的排队"))


def _chunk(value: Value, before: Value | None, probe: Probe) -> Prediction:
    if not isinstance(value, int) or not isinstance(before, int):
        return _unknown(Words("the engine's own budget", "引擎自己选择的 token 上限"))
    new = max(probe.longest_prompt, 1)
    if min(value, before) >= new * max(probe.most_streams, 1):
        text = Words(
            f"prompts of {new:,} tokens are one step either way", f"{new:,} 个 token 的提示词两种情况下都只需一步"
        )
        return _flat(text)
    then, now = math.ceil(new / value), math.ceil(new / before)
    text = Words(
        f"not predicted: {then} steps a prompt instead of {now}", f"没有预测：每个提示词 {then} 步，原来 {now} 步"
    )
    return Prediction(None, text)


def _bytes(knob: Knob, value: Value, before: Value | None, probe: Probe, objective: Objective) -> Prediction:
    roofline = probe.roofline()
    if roofline is None:
        return _unknown(Words("bytes of a model whose config is not here", "配置不在本机的模型的字节数"))
    costs = roofline.costs
    own = _own_bytes(knob, before, roofline)
    if own is None or str(value) not in knob.bytes:
        return _unknown(Words("the bytes of this form", "这种形式的字节数"))
    ratio = knob.bytes[str(value)] / own
    if knob.affects == "weights":
        changed = replace(costs, weight_bytes=costs.weight_bytes * ratio)
    else:
        changed = replace(costs, kv_bytes_per_token=costs.kv_bytes_per_token * ratio)
    now, then = (_times(replace(roofline, costs=one), probe) for one in (costs, changed))
    gain = now.gain(then, objective, probe.output)
    share = f"{_read(changed, probe) / _read(costs, probe):.0%}"
    text = Words(f"a step reads {share} of the bytes", f"每步读取的字节为原来的 {share}")
    if abs(gain) < _NOTHING:
        none = f"{text.en}, which is no gain in this objective", f"{text.zh}，对这个目标没有提升"
        return _flat(Words(*none))
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
