"""A scenario's use of the machine, from the samples taken meanwhile: load, memory, power, energy a token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from firsttoken.bench.records import Check, RunResult, Sample, ScenarioResult

_HELD_BACK_FLAG = 0.05  # share of samples from which clocks held back are worth a flag
_POWER_CAP = "software power cap"
_TOLD_BY, _TOLD_SHARE = 0.5, 0.5  # seconds, and of a stretch, from which its samples tell who used the cores
_SLOWER_FLAG = 0.05  # share of the fastest clock: a card at its power limit is as it should be until it loses more


class Usage(msgspec.Struct, kw_only=True, frozen=True):
    """Means and maxima over one scenario; None where a sensor is absent or the scenario was too short for it.

    Several cards: loads and clocks are their mean, memory, power and energy their sum.
    """

    gpu_percent: float | None = None
    memory_percent: float | None = None  # of the time in which the cards' memory was busy
    vram_bytes: float | None = None  # the most
    power_w: float | None = None
    energy_j: float | None = None
    energy_from: Literal["counter", "power"] | None = None
    energy_j_per_token: float | None = None  # output tokens
    sm_clock_mhz: float | None = None
    sm_clock_peak_mhz: float | None = None  # the fastest card's
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None  # the most
    held_back: dict[str, float] = {}  # share of samples by reason
    card_users: dict[str, float] = {}  # per cent of the multiprocessors, on average, by "gpu0:<pid>"
    host_cpu_percent: float | None = None
    server_cores: float | None = None  # cores' worth of CPU, all its processes
    server_rss_bytes: float | None = None  # the most, all its processes; shared pages count for each
    client_cores: float | None = None
    other_cores: float | None = None  # cores' worth of CPU that neither server nor client used, steal included
    cores: float | None = None  # of which all these are parts


def usage(samples: Iterable[Sample], start: float, end: float, output_tokens: int = 0) -> Usage:
    """What `samples` say of the time from `start` to `end`, seconds of time.monotonic()."""
    by_source: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_source[sample.source].append(sample)
    gpus = [_Series(series, start, end) for name, series in sorted(by_source.items()) if name.startswith("gpu")]
    energy, energy_from = _energy(gpus)
    host = _Series(by_source["host"], start, end)
    server, client = _processes(by_source, "server", start, end), _processes(by_source, "client", start, end)
    states = [state for gpu in gpus for sample in gpu.inside for state in sample.states]
    readings = sum(len(gpu.inside) for gpu in gpus)
    return Usage(
        gpu_percent=_mean(gpu.mean("gpu_percent") for gpu in gpus),
        memory_percent=_mean(gpu.mean("memory_percent") for gpu in gpus),
        vram_bytes=_sum(gpu.largest("memory_used_bytes") for gpu in gpus),
        power_w=_sum(gpu.mean("power_w") for gpu in gpus),
        energy_j=energy,
        energy_from=energy_from,
        energy_j_per_token=energy / output_tokens if energy is not None and output_tokens else None,
        sm_clock_mhz=_mean(gpu.mean("sm_clock_mhz") for gpu in gpus),
        sm_clock_peak_mhz=max((m for gpu in gpus if (m := gpu.largest("sm_clock_mhz")) is not None), default=None),
        memory_clock_mhz=_mean(gpu.mean("memory_clock_mhz") for gpu in gpus),
        temperature_c=max((heat for gpu in gpus if (heat := gpu.largest("temperature_c")) is not None), default=None),
        held_back={state: states.count(state) / readings for state in dict.fromkeys(states)},
        card_users=_card_users(by_source, start, end),
        host_cpu_percent=host.mean("cpu_percent"),
        server_cores=_cores(server),
        server_rss_bytes=_sum(series.largest("rss_bytes") for series in server),
        client_cores=_cores(client),
        other_cores=_others(host, server, client),
        cores=max((sample.values["cores"] for sample in host.all if "cores" in sample.values), default=None),
    )


def scenario_usage(scenario: ScenarioResult, samples: Iterable[Sample]) -> Usage:
    """The same of a scenario's measured requests, first send to last end; its time for making prompts is left out."""
    measured = [record for record in scenario.records if record.phase == "measured"]
    start = min((record.sent for record in measured), default=scenario.started)
    end = max((record.ended for record in measured), default=scenario.ended)
    return usage(samples, start, end, scenario.metrics.output_tokens if scenario.metrics is not None else 0)


def clocks_judge(samples: Callable[[], Sequence[Sample]]) -> Callable[[ScenarioResult, RunResult], list[Check]]:
    """A check of each finished scenario against the samples taken until then: were clocks held back?"""

    def judge(scenario: ScenarioResult, run: RunResult) -> list[Check]:
        return check_clocks(scenario_usage(scenario, samples()))

    return judge


def check_clocks(found: Usage) -> list[Check]:
    """Empty where no card was read: an absent sensor is said elsewhere."""
    if found.sm_clock_mhz is None:
        return []
    held = {reason: share for reason, share in found.held_back.items() if share >= _HELD_BACK_FLAG}
    if not held:
        return [Check(name="clocks", level="ok", text=f"SM clock {found.sm_clock_mhz:.0f} MHz, never held back.")]
    reasons = ", ".join(f"{reason} {share:.0%}" for reason, share in held.items())
    clocks = f"SM clock {found.sm_clock_mhz:.0f} MHz on average, {found.sm_clock_peak_mhz:.0f} at most"
    lost = 1 - found.sm_clock_mhz / (found.sm_clock_peak_mhz or found.sm_clock_mhz)
    if set(held) == {_POWER_CAP} and lost < _SLOWER_FLAG:
        return [Check(name="clocks", level="ok", text=f"At the power limit ({reasons} of the samples); {clocks}.")]
    text = f"Clocks were held back ({reasons} of the samples; {clocks})."
    return [Check(name="clocks", level="flag", text=text)]


class _Series:
    """One source's samples around a stretch of time."""

    def __init__(self, samples: Sequence[Sample], start: float, end: float) -> None:
        self.all = samples
        self.start, self.end = start, end
        self.inside = [sample for sample in samples if start <= sample.at <= end]

    def mean(self, name: str) -> float | None:
        return _mean(sample.values.get(name) for sample in self.inside)

    def largest(self, name: str) -> float | None:
        return max((sample.values[name] for sample in self.inside if name in sample.values), default=None)

    def difference(self, name: str) -> float | None:
        """How much a counter rose, read between its samples where the stretch begins and ends."""
        points = self._points(name)
        first, last = _at(points, self.start), _at(points, self.end)
        return None if first is None or last is None else last - first

    def integral(self, name: str) -> float | None:
        """Sum over time, straight lines between samples."""
        points = self._points(name)
        first, last = _at(points, self.start), _at(points, self.end)
        if first is None or last is None:
            return None
        inner = [point for point in points if self.start < point[0] < self.end]
        whole = [(self.start, first), *inner, (self.end, last)]
        return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(whole))

    def core_seconds(self, name: str, unit: float) -> tuple[float, float]:
        """A load's part in the stretch, and the seconds of the stretch that its samples tell about."""
        total = seen = 0.0
        for before, sample in pairwise(self.all):
            inside = min(sample.at, self.end) - max(before.at, self.start)
            if inside > 0 and name in sample.values:
                total += sample.values[name] * unit * inside
                seen += inside
        return total, seen

    def _points(self, name: str) -> list[tuple[float, float]]:
        return [(sample.at, sample.values[name]) for sample in self.all if name in sample.values]


def _at(points: Sequence[tuple[float, float]], time: float) -> float | None:
    """A value between two samples; None outside of them."""
    for (t0, v0), (t1, v1) in pairwise(points):
        if t0 <= time <= t1:
            return v0 + (v1 - v0) * (time - t0) / (t1 - t0) if t1 > t0 else v0
    return None


def _energy(gpus: Sequence[_Series]) -> tuple[float | None, Literal["counter", "power"] | None]:
    counted = [gpu.difference("energy_j") for gpu in gpus]
    if counted and all(joules is not None for joules in counted):
        return _sum(counted), "counter"
    summed = [gpu.integral("power_w") for gpu in gpus]
    if summed and all(joules is not None for joules in summed):
        return _sum(summed), "power"
    return None, None


def _processes(by_source: dict[str, list[Sample]], role: str, start: float, end: float) -> list[_Series]:
    return [_Series(series, start, end) for name, series in by_source.items() if name.startswith(f"process:{role}/")]


def _card_users(by_source: dict[str, list[Sample]], start: float, end: float) -> dict[str, float]:
    """Over all readings of a card in the stretch: who is not in one did nothing then."""
    found: dict[str, float] = {}
    for name, series in by_source.items():
        kind, _, user = name.partition(":")
        if kind == "user":
            readings = len(_Series(by_source.get(user.partition(":")[0], []), start, end).inside)
            worked = sum(sample.values.get("sm_percent", 0.0) for sample in _Series(series, start, end).inside)
            if readings:
                found[user] = worked / readings
    return found


def _cores(processes: Sequence[_Series]) -> float | None:
    """Cores' worth over the whole stretch: a process that lived half as long counts half."""
    moments = {sample.at for series in processes for sample in series.inside if "cpu_percent" in sample.values}
    if not moments:
        return None
    total = sum(sample.values.get("cpu_percent", 0.0) for series in processes for sample in series.inside)
    return total / 100 / len(moments)


def _others(host: _Series, server: Sequence[_Series], client: Sequence[_Series]) -> float | None:
    """What is left of the busy cores. None where a part is not known, or too little of the stretch was seen.

    A load is that of the time since the sample before it, so each counts by how much of that lies in the stretch: all
    sources are read together, and the same times go in on both sides, however few they are.
    """
    busy, seen = host.core_seconds("busy_cores", 1.0)
    if not server or not client or seen < max(_TOLD_BY, _TOLD_SHARE * (host.end - host.start)):
        return None
    ours = sum(series.core_seconds("cpu_percent", 0.01)[0] for series in (*server, *client))
    return max(busy - ours, 0.0) / seen


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
