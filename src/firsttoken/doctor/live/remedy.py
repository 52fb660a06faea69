"""The one change most likely to help, and what the roofline says that it would bring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firsttoken.bench import units
from firsttoken.doctor.live.judge import Finding, Verdict
from firsttoken.doctor.live.reading import Window
from firsttoken.doctor.live.sensed import Sensed
from firsttoken.doctor.live.work import Bounds

_WORTH = 1.05  # a smaller gain is not worth a change
_16_BITS = 12.0  # bits a weight above which there are 16
_FULL = 0.9  # of the slots
_SPARE = 0.95  # of the KV cache that more sequences may fill

# What each engine calls the same thing. SGLang's from its server arguments, vLLM's from `vllm serve --help`.
_SLOTS = {"firsttoken": "--max-num-seqs", "vllm": "--max-num-seqs", "sglang": "--max-running-requests"}
_POOL = {
    "firsttoken": "--gpu-memory-utilization",
    "vllm": "--gpu-memory-utilization",
    "sglang": "--mem-fraction-static",
}
_FP8_CACHE = {
    "firsttoken": "--kv-cache-dtype fp8",
    "vllm": "--kv-cache-dtype fp8",
    "sglang": "--kv-cache-dtype fp8_e4m3",
}
_FP8_WEIGHTS = {"firsttoken": "--quantization fp8", "vllm": "--quantization fp8", "sglang": "--quantization fp8"}
_NO_GRAPHS = {"firsttoken": "--enforce-eager", "vllm": "--enforce-eager", "sglang": "--disable-cuda-graph"}
_CACHE_OFF = {
    "firsttoken": "--no-enable-prefix-caching",
    "vllm": "--no-enable-prefix-caching",
    "sglang": "--disable-radix-cache",
}


@dataclass(frozen=True, slots=True)
class Remedy:
    """`gain`: by what factor `of` is predicted to rise at most; None where nothing is known to predict it from."""

    change: str
    gain: float | None = None
    of: str = "tok/s"
    at_most: bool = True
    basis: str = "the roofline"  # what it is predicted from


def remedy(finding: Finding, window: Window, bounds: Bounds, sensors: Sensed | None = None) -> Remedy:
    """Pure. Gains keep what a step takes beyond its floor, except those that say "at most"."""
    return _REMEDIES[finding.verdict](finding, window, bounds, sensors)


def _idle(finding: Finding, window: Window, bounds: Bounds, sensors: Sensed | None) -> Remedy:
    return Remedy("Nothing to tune: the server waits for requests. Look at the client, or send more at once.")


def _undecided(finding: Finding, window: Window, bounds: Bounds, sensors: Sensed | None) -> Remedy:
    return Remedy(
        "Tell what is unknown: --model-config names the model, `firsttoken doctor ceilings` measures this machine, and "
        "--gpu or --memory-gb-s give another's rates."
    )


def _throttled(finding: Finding, window: Window, bounds: Bounds, sensors: Sensed | None) -> Remedy:
    assert sensors is not None
    if sensors.runnable_per_core is not None:
        text = "Stop other programs, or give the server cores of its own (`taskset`, a container's cpuset)."
        return Remedy(text, sensors.runnable_per_core, basis="the threads for each core")
    share = sensors.clock_share
    gain = 1 / share if share else None
    if "power" in (sensors.throttled or ""):
        return Remedy(
            "Raise the card's power limit to its default (`firsttoken doctor` reads both).", gain, basis="the clocks"
        )
    return Remedy("Cool the card: fans, air flow and neighbours come before any setting.", gain, basis="the clocks")


def _queue(finding: Finding, window: Window, bounds: Bounds, sensors: Sensed | None) -> Remedy:
    running, wanted = window.running, window.running + window.waiting
    room = running / window.kv_usage * _SPARE if window.kv_usage else wanted
    slots = int(min(wanted, max(room, running)))
    if bounds.slots is not None and running < _FULL * bounds.slots:
        return Remedy(
            "Raise --max-step-ms, or --max-num-batched-tokens where it is lower: steps are full, not slots. Each then "
            "takes in more of the waiting prompts, and streams that run get their tokens less often."
        )
    change = f"Raise {_SLOTS[window.engine]} to {slots}: every step then runs more sequences for the same weights."
    gain = _more_sequences(finding, running, slots)
    if gain is None:
        return Remedy(f"{change} What computing costs is unknown here, so measure it before and after.")
    if gain < _WORTH:
        return Remedy("More slots would not help, the device is full: serve on a second one, or refuse earlier.")
    return Remedy(change, gain, at_most=False)


def _kv(finding: Finding, window: Window, bounds: Bounds, sensors: Sensed | None) -> Remedy:
    engine, running = window.engine, window.running
    if window.kv_in_8_bits or bounds.on_cpu:
        flag = "--kv-cache-memory" if bounds.on_cpu else _POOL[engine]
        return Remedy(f"Give the KV cache more memory ({flag}), or let fewer run ({_SLOTS[engine]}).")
    sequences = min(2 * running, running + window.waiting)
    gain = _more_sequences(finding, running, sequences, context=0.5)
    return Remedy(f"Keep the KV cache in 8 bits ({_FP8_CACHE[engine]}): twice the tokens fit.", gain, at_most=False)


def _memory(finding: Finding, window: Window, bounds: Bounds, sensors: Sensed | None) -> Remedy:
    load, bits = finding.load, bounds.weight_bits
    halved = f"Read weights of 8 bits ({'--quantization int8' if bounds.on_cpu else _FP8_WEIGHTS[window.engine]})"
    if load is None or load.memory is None or not load.split:
        return Remedy(f"{halved}, if they have 16.")
    gains: list[tuple[float, str]] = []
    if bits is None or bits > _16_BITS:
        gains.append((load.seconds / load.predicted(weights=0.5), halved + ("." if bits else ", if they have 16.")))
    if not window.kv_in_8_bits and not bounds.on_cpu:
        cache = f"Keep the KV cache in 8 bits ({_FP8_CACHE[window.engine]})."
        gains.append((load.seconds / load.predicted(context=0.5), cache))
    gain, change = max(gains, default=(1.0, ""))
    if gain >= _WORTH:
        return Remedy(change, gain, at_most=False)
    return Remedy("Nothing to tune: what is left to read is the limit. Faster memory or a smaller model would help.")


def _compute(finding: Finding, window: Window, bounds: Bounds, sensors: Sensed | None) -> Remedy:
    load = finding.load
    if not window.added.looked_up and window.computed:
        flag = _CACHE_OFF[window.engine]
        return Remedy(f"Turn the prefix cache on (without {flag}): a prefix that comes again is not computed again.")
    ceilings = bounds.ceilings
    wide = bounds.weight_bits is None or bounds.weight_bits > _16_BITS
    if wide and ceilings is not None and ceilings.fp8_product and ceilings.product:
        faster = ceilings.product / ceilings.fp8_product
        gain = None if load is None or load.compute is None else load.seconds / load.predicted(compute=faster)
        return Remedy(f"Multiply in FP8 ({_FP8_WEIGHTS[window.engine]}).", gain)
    hits = window.hit_rate or 0.0
    share = window.computed / max(1.0, window.computed + (window.added.generated or 0.0))
    if hits >= 0.5 or load is None or load.compute is None or share < 0.5:
        return Remedy(
            "Nothing to tune: arithmetic is the limit. A second device, a faster one or a smaller model would help."
        )
    gain = load.seconds / load.predicted(compute=1 - share / 2)
    text = (
        f"Put what prompts share first: the prefix cache had {units.percent(hits)} of their tokens. With half of the "
        "rest found"
    )
    return Remedy(text + ", fewer are computed.", gain)


def _host(finding: Finding, window: Window, bounds: Bounds, sensors: Sensed | None) -> Remedy:
    load = finding.load
    gain = None
    if load is not None and load.memory is not None and load.floor() > 0:
        gain = load.seconds / max(load.floor(), load.seconds * (window.device_busy or 0.0))
    elif window.device_busy:
        gain = 1 / window.device_busy
    if window.eager is not None and window.eager > 0.5:
        return Remedy(f"Run decode steps as CUDA graphs: start without {_NO_GRAPHS[window.engine]}.", gain)
    if window.waited is not None:
        text = "Give the engine's process a fast core of its own: `firsttoken doctor` checks cores, quota and governor."
        return Remedy(text, gain)
    flag = _NO_GRAPHS[window.engine]
    return Remedy(
        f"Start it without {flag} if it was started so; then look at its gaps with `firsttoken doctor trace`.", gain
    )


def _more_sequences(finding: Finding, running: float, sequences: float, context: float = 1.0) -> float | None:
    """By what factor throughput rises when a step runs more sequences, each reading `context` times its own cache.

    None where the model's size or the arithmetic's ceiling is unknown, the latter unless memory is what a step takes.
    """
    load = finding.load
    if load is None or load.memory is None or not load.split or not running:
        return None
    if load.compute is None and load.memory < 0.5 * load.seconds:
        return None
    more = sequences / running
    return more * load.seconds / load.predicted(context=more * context, compute=more)


_Remedies = dict[Verdict, Callable[[Finding, Window, Bounds, Sensed | None], Remedy]]
_REMEDIES: _Remedies = {
    "idle": _idle,
    "undecided": _undecided,
    "throttled": _throttled,
    "queue-bound": _queue,
    "KV-bound": _kv,
    "memory-bound": _memory,
    "compute-bound": _compute,
    "host-bound": _host,
}
