"""Which values of which knobs are tried: what this machine has, what fits, and what can matter for the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from firsttoken.bench.words import Words, same
from firsttoken.errors import ConfigError
from firsttoken.machine.cards import known_card
from firsttoken.model import memory_plan
from firsttoken.model.cost import weight_bytes
from firsttoken.tune.arms import Arm, Candidate, Settings, Value
from firsttoken.tune.objective import Objective
from firsttoken.tune.predict import Prediction, predict
from firsttoken.tune.probe import Probe
from firsttoken.tune.space import Knob, Space, values_of


@dataclass(frozen=True, slots=True)
class Skipped:
    """A value that is not tried."""

    arm: Arm
    why: Words


@dataclass(frozen=True, slots=True)
class Choice:
    """What a session tries and what not."""

    candidates: list[Candidate]
    skipped: list[Skipped]
    predictions: dict[Arm, Prediction]


def choose(
    space: Space,
    wanted: Mapping[str, Sequence[Value]],
    baseline: Settings,
    probe: Probe,
    objective: Objective,
) -> Choice:
    """`wanted` holds the knobs that are tried, with values of the user's own or none."""
    chosen = Choice([], [], {})
    for name, values in wanted.items():
        knob = space.find(name)
        before = baseline.get(name, knob.default.get(probe.device))
        for value in values or values_of(knob, probe.device, probe.cores):
            arm = Arm(name, value)
            if before is not None and type(value) is type(before) and value == before:
                continue  # the baseline itself
            prediction = predict(knob, value, before, probe, objective)
            why = _cannot(knob, value, space, probe) or why_not_fit({**baseline, name: value}, knob, value, probe)
            if why is None and prediction.skip and not values:
                why = Words(f"cannot matter here: {prediction.text.en}", f"在这里不可能有影响：{prediction.text.zh}")
            if why is not None:
                chosen.skipped.append(Skipped(arm, why))
                continue
            chosen.predictions[arm] = replace(prediction, skip=False)
            chosen.candidates.append(Candidate(arm, knob.numerics, prediction.gain))
    return chosen


def _cannot(knob: Knob, value: Value, space: Space, probe: Probe) -> Words | None:
    """What the engine or the card lacks; None where nothing."""
    if knob.numerics and not space.quality:
        return Words(
            f"it changes the answers, and their quality can be measured with firsttoken alone, not with {space.name}",
            f"它会改变回答，而回答质量只能在 firsttoken 上测量，不能在 {space.name} 上测量",
        )
    least = knob.capability.get(str(value))
    card = known_card(probe.card) if probe.card else None
    if least is not None and card is not None and card.capability < (int(least), round(least * 10) % 10):
        return Words(
            f"{card.name} has no products of this form: it takes compute capability {least:g}",
            f"{card.name} 不支持这种形式的矩阵乘：需要计算能力 {least:g}",
        )
    return None


def why_not_fit(settings: Mapping[str, Value], knob: Knob, value: Value, probe: Probe) -> Words | None:
    """Why weights, activations and the keys and values of the work cannot be in memory together; None if they can.

    Where the model's config is not here, nothing is ruled out: the launch says it then.
    """
    roofline = probe.roofline()
    if roofline is None or roofline.costs.config is None or not probe.memory_total:
        return None
    costs, config = roofline.costs, roofline.costs.config
    memory = memory_plan.DeviceMemory(
        kind=probe.device,
        total=probe.memory_total,
        free=probe.memory_free,
        utilization=float(settings.get("gpu-memory-utilization", 0.9)),
    )
    asked = [int(settings[name]) if name in settings else None for name in ("max-num-seqs", "max-num-batched-tokens")]
    try:
        seqs, tokens = memory_plan.batch_limits(probe.device, probe.memory_total, *asked)
    except ConfigError as error:
        return same(str(error))
    kv_element = 1 if str(settings.get("kv-cache-dtype", "")).startswith("fp8") else 2
    weights = costs.weight_bytes
    if knob.affects == "weights" and str(value) in knob.bytes:
        weights = min(weights, weight_bytes(config, knob.bytes[str(value)]))
    demand = memory_plan.Demand(
        model="the model",
        config=config,
        weight_bytes=int(weights),
        element_bytes=2,
        kv_element_bytes=kv_element,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        block_size=int(settings.get("block-size", 16)),
        max_model_len=None,
        kv_cache_memory=None,
    )
    runtime = memory_plan.CPU_RUNTIME if probe.device == "cpu" else memory_plan.CUDA_RUNTIME
    blocks = -(-probe.longest // demand.block_size)
    needed = demand.weight_bytes + demand.activation_bytes + runtime + blocks * demand.block_bytes
    if needed <= memory.budget:
        return None
    takes, may = f"{needed / memory_plan.GIB:.1f} GiB", f"{memory.budget / memory_plan.GIB:.1f} GiB"
    return Words(
        f"it does not fit: weights, a step and one request of {probe.longest:,} tokens take {takes}, and {may} may be "
        "used",
        f"内存放不下：权重、一步计算和一个 {probe.longest:,} token 的请求需要 {takes}，可用 {may}",
    )
