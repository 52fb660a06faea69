"""From a window to what bounds the server: the verdict, and the numbers that it rests on. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from firsttoken.bench import units
from firsttoken.bench.roofline import TOLERANCE
from firsttoken.doctor.live.reading import Window
from firsttoken.doctor.live.sensed import Sensed
from firsttoken.doctor.live.work import Bounds, Load, load_of

Verdict = Literal[
    "idle",
    "throttled",
    "KV-bound",
    "compute-bound",
    "host-bound",
    "queue-bound",
    "memory-bound",
    "undecided",
]

_IDLE = 0.5  # share of the time with work below which nobody waits for the server
_KV_FULL = 0.9
_QUEUE = 0.1  # waiting sequences for each running one that make a queue
_COMPUTES = 0.5  # share of the product's ceiling from which on computing is what a step does
_NEAR = 0.4  # share of a ceiling below which something else takes the time
_HOST_WAITS = 0.5  # share of the busy time that the host waits from which on the device is the slower of the two
_HOST_NEVER_WAITS = 0.1
_DEVICE_WAITS = 0.6  # share of the busy time that the device works below which it waits for the host
_KERNELS_RARE = 0.7
_CROWD = 1.6  # threads for each core; the server and one client alone stay below it
_RIDGE = 200  # FLOPs a byte: between those of an A100 (150) and an H100 (300) in 16 bits


@dataclass(frozen=True, slots=True)
class Finding:
    """What bounds the server, with evidence: sentences with numbers, the decisive one first."""

    verdict: Verdict
    evidence: tuple[str, ...]
    load: Load | None


def judge(window: Window, bounds: Bounds, sensors: Sensed | None = None) -> Finding:
    """The causes are looked for in the order in which each hides those after it.

    Nothing to do; a card that is held back; a full cache; saturated arithmetic; a device that waits for its host; a
    queue for want of slots; memory; and, where the step is far from both ceilings, the host again.
    """
    load = load_of(window, bounds)
    looks = [_idle, _throttled, _kv, _compute, _host, _queue]
    if not bounds.on_cpu or (load is not None and load.memory is not None):  # what cards have in common, CPUs have not
        looks.append(_device)
    for look in looks:
        found = look(window, load, sensors)
        if found is not None:
            verdict, evidence = found
            return Finding(verdict, tuple(text for text in (*evidence, _doubt(load), _crowd(sensors)) if text), load)
    return Finding("undecided", (_busy(window), *bounds.missing), load)


_Found = tuple[Verdict, tuple[str, ...]] | None


def _idle(window: Window, load: Load | None, sensors: Sensed | None) -> _Found:
    if window.waiting >= 0.5 or window.active >= _IDLE:
        return None
    text = f"The server had work for {units.percent(window.active)} of the time and nobody waited."
    return "idle", (text, _pace(window))


def _throttled(window: Window, load: Load | None, sensors: Sensed | None) -> _Found:
    reason = None if sensors is None else sensors.throttled
    if sensors is None or reason is None:
        return None
    if sensors.runnable_per_core is not None:
        wanted = units.digits(sensors.runnable_per_core)
        text = f"For each core {wanted} threads wanted to run: other programs use them."
        return "throttled", (text, _shares(load), _step(window))
    limits = sensors.limits
    parts = [
        f"The driver held the clocks back ({reason}) in {units.percent(sensors.held_back[reason])} of the readings"
    ]
    if sensors.sm_clock_mhz is not None:
        highest = f" of at most {limits.max_sm_clock_mhz:.0f}" if limits.max_sm_clock_mhz else ""
        parts.append(f"SM clock {sensors.sm_clock_mhz:.0f}{highest} MHz")
    if sensors.power_w is not None:
        default = f" by default {limits.power_default_w:.0f}" if limits.power_default_w else ""
        limit = f" (limit {limits.power_limit_w:.0f},{default})" if limits.power_limit_w else ""
        parts.append(f"{sensors.power_w:.0f} W{limit}")
    if sensors.temperature_c is not None:
        parts.append(f"{sensors.temperature_c:.0f} °C")
    return "throttled", (", ".join(parts) + ".", _shares(load))


def _kv(window: Window, load: Load | None, sensors: Sensed | None) -> _Found:
    usage, preempted = window.kv_usage or 0.0, window.added.preempted or 0.0
    if not preempted and not (window.waiting >= 1 and usage >= _KV_FULL):
        return None
    text = (
        f"{units.percent(usage)} of the KV cache was held, {units.count(preempted)} preemptions happened, and "
        f"{units.digits(window.waiting)} waited."
    )
    return "KV-bound", (text, _busy(window), _shares(load))


def _compute(window: Window, load: Load | None, sensors: Sensed | None) -> _Found:
    if load is None or load.compute_share is None or load.compute_share < _COMPUTES:
        return None
    if load.memory_share is not None and load.memory_share > load.compute_share:
        return None
    return "compute-bound", (_shares(load), _busy(window))


def _host(window: Window, load: Load | None, sensors: Sensed | None) -> _Found:
    """By what was timed. What is only far from the ceilings is judged last."""
    step = _step(window)
    if window.waited is not None and window.waited < _HOST_NEVER_WAITS:
        text = f"The host waited for the device in {units.percent(window.waited)} of the busy time: it was never ahead."
        return "host-bound", (text, step, _shares(load))
    if window.device_busy is not None and window.device_busy < _DEVICE_WAITS:
        text = (
            f"The device ran steps for {units.percent(window.device_busy)} of the busy time, and waited for the rest."
        )
        return "host-bound", (text, step, _shares(load))
    if sensors is not None and sensors.kernels is not None and sensors.kernels < _KERNELS_RARE * window.active:
        ran, there = units.percent(sensors.kernels), units.percent(window.active)
        text = f"Kernels ran in {ran} of the time, and requests were there in {there}."
        return "host-bound", (text, step, _shares(load))
    if window.eager is not None and window.eager > 0.5 and _far(load):
        text = (
            f"{units.percent(window.eager)} of the decode steps were launched kernel by kernel, without a CUDA graph."
        )
        return "host-bound", (text, step, _shares(load))
    return None


def _queue(window: Window, load: Load | None, sensors: Sensed | None) -> _Found:
    if window.waiting < max(1.0, _QUEUE * window.running):
        return None
    held = "" if window.kv_usage is None else f", with {units.percent(window.kv_usage)} of the KV cache held"
    text = f"{units.digits(window.waiting)} sequences waited while {units.digits(window.running)} ran{held}."
    queued = (
        ""
        if not window.queue_time
        else f"Requests that ended had waited {units.seconds(window.queue_time)} on average."
    )
    return "queue-bound", (text, queued, _shares(load), _step(window))


def _device(window: Window, load: Load | None, sensors: Sensed | None) -> _Found:
    memory = None if load is None else load.memory_share
    compute = None if load is None else load.compute_share
    host_waits = window.waited is not None and window.waited >= _HOST_WAITS
    if memory is None:
        return _by_intensity(window)
    if memory >= max(_NEAR, compute or 0.0):
        return "memory-bound", (_shares(load), _step(window))
    if compute is not None and compute >= max(_NEAR, memory):
        return "compute-bound", (_shares(load), _step(window))
    if not host_waits:
        far = "The step is far from both ceilings, and nothing shows that the device is what it waits for."
        return "host-bound", (_shares(load), far, _step(window))
    waits = f"The host waited for the device in {units.percent(window.waited)} of the busy time."
    if compute is None:  # a CPU: no single ceiling for its products, and memory is not what it waits for
        left = "Reading is not the limit and the host is ahead: arithmetic is left, for which a CPU has no one ceiling."
        return "compute-bound", (waits, _shares(load), left, _step(window))
    far = "No ceiling is near: the kernels themselves are slow, and `firsttoken doctor trace` names them."
    return "memory-bound" if memory >= compute else "compute-bound", (waits, _shares(load), far)


def _by_intensity(window: Window) -> _Found:
    """Without bytes or a ceiling: a token takes 2 FLOPs a weight, so tokens a step tell which of the two is longer."""
    tokens = window.tokens_per_step
    if tokens is None:
        return None
    text = (
        f"A step ran {units.digits(tokens)} tokens; in 16 bits, cards of today compute as long as they read at about "
        f"{_RIDGE}. How near either ceiling is cannot be told."
    )
    return "compute-bound" if tokens >= _RIDGE else "memory-bound", (text, _step(window))


def _far(load: Load | None) -> bool:
    if load is None or load.memory_share is None:
        return True
    return max(load.memory_share, load.compute_share or 0.0) < _NEAR


def _doubt(load: Load | None) -> str:
    shares = () if load is None else (load.memory_share or 0.0, load.compute_share or 0.0)
    if max(shares, default=0.0) <= 1 + TOLERANCE:
        return ""
    return "That is beyond the ceiling: it was measured too low, or the model is smaller than is believed here."


def _crowd(sensors: Sensed | None) -> str:
    """On a CPU whose cores others want too, though not enough to say that they are the cause."""
    if sensors is None or sensors.runnable_per_core is None or sensors.throttled is not None:
        return ""
    wanted = sensors.runnable_per_core
    if wanted < _CROWD:
        return ""
    return f"For each core {units.digits(wanted)} threads wanted to run: other programs may have slowed this one."


def _shares(load: Load | None) -> str:
    """ "Steps read 3.57 TB/s, 81 % of the ceiling, and computed 3.7 TFLOP/s, 0.5 %"."""
    if load is None:
        return ""
    read = f"Steps read {units.scaled(load.read_bytes, 'B/s')}"
    if load.memory_share is not None:
        read += f", {units.percent(load.memory_share)} of the ceiling"
    if load.flops is None:
        return read + "."
    computed = f"{read}, and computed {units.scaled(load.flops, 'FLOP/s')}"
    if load.compute_share is not None:
        computed += f", {units.percent(load.compute_share)} of its ceiling"
    return computed + "."


def _step(window: Window) -> str:
    if window.step_seconds is None:
        return ""
    tokens = "" if window.tokens_per_step is None else f" and {units.digits(window.tokens_per_step)} tokens"
    each = window.context / window.streams if window.streams else 0.0
    context = f" over contexts of {each:,.0f} tokens each" if each >= 1 else ""
    sequences = f"{units.digits(window.streams)} sequences"
    return f"A step of {sequences}{tokens}{context} took {units.seconds(window.step_seconds)}."


def _busy(window: Window) -> str:
    return f"The server was busy for {units.percent(window.active)} of the time. {_step(window)}".strip()


def _pace(window: Window) -> str:
    tokens = window.added.generated
    if not tokens:
        return ""
    while_busy = f" ({units.rate(tokens / window.busy_seconds)} tok/s while it had work)" if window.busy_seconds else ""
    return f"It made {units.rate(tokens / window.seconds)} tok/s{while_busy}."
