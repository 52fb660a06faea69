"""The report's part on GPU, host and processes beside the run."""

from __future__ import annotations

from collections import defaultdict
from html import escape

from firsttoken.bench import figures
from firsttoken.bench.records import RunResult
from firsttoken.bench.report_parts import figure
from firsttoken.bench.words import Words

_MOST_SOURCES = 5  # of one chart; the largest ones are shown

Points = list[tuple[float, float]]

_QUANTITIES: dict[str, tuple[Words, Words, float]] = {
    "gpu_percent": (Words("GPU busy", "GPU 忙碌时间"), Words("% of time", "时间占比 %"), 1),
    "memory_percent": (Words("GPU memory busy", "显存忙碌时间"), Words("% of time", "时间占比 %"), 1),
    "memory_used_bytes": (Words("Memory in use", "内存/显存用量"), Words("GiB", "GiB"), 1 / 2**30),
    "rss_bytes": (Words("Memory of processes", "各进程内存"), Words("GiB", "GiB"), 1 / 2**30),
    "power_w": (Words("Power", "功率"), Words("Watts", "瓦"), 1),
    "sm_clock_mhz": (Words("Core clock", "核心频率"), Words("MHz", "MHz"), 1),
    "memory_clock_mhz": (Words("Memory clock", "显存频率"), Words("MHz", "MHz"), 1),
    "temperature_c": (Words("Temperature", "温度"), Words("°C", "°C"), 1),
    "cpu_percent": (Words("CPU", "CPU"), Words("% (of a process: of one core)", "%（进程：单核为 100 %）"), 1),
}
"""By the sensor's name: caption, axis, and what a value is multiplied with. Other sensors are counters."""


def sensor_section(result: RunResult) -> str:
    """One chart a quantity, over the whole run, and the reasons for which clocks were held back."""
    charts: dict[str, list[tuple[str, Points]]] = defaultdict(list)
    for source, name, points in figures.sensors(result):
        if name in _QUANTITIES and len(points) > 1:
            charts[name].append((_short(source), points))
    if not charts:
        return ""
    parts = []
    for name, (caption, unit, scale) in _QUANTITIES.items():
        if not charts[name]:
            continue
        shown = sorted(charts[name], key=lambda one: -max(value for _, value in one[1]))[:_MOST_SOURCES]
        label = f"sensor-{name}"
        hidden = len(charts[name]) - len(shown)
        note = Words(f"{hidden} smaller ones are left out", f"省略较小的 {hidden} 项").html if hidden else ""
        parts.append(figure(label, caption, figures.sensor_chart(shown, unit, scale, label), note=note))
    heading = Words("GPU and host", "GPU 与主机")
    return f'<h2>{heading.html}</h2>\n{_held_back(result)}<div class="charts">{"".join(parts)}</div>\n'


def _held_back(result: RunResult) -> str:
    reasons = figures.throttled(result.samples)
    if not reasons:
        return ""
    named = ", ".join(f"{reason} ({number:,})" for reason, number in sorted(reasons.items()))
    words = Words(
        "Reasons for held-back clocks, with the readings that named them:", "频率受限的原因（括号内为读到的次数）："
    )
    return f"<p>{words.html} {escape(named)}</p>\n"


def _short(source: str) -> str:
    """ "process:server/python:812" is "server/python 812"."""
    kind, _, rest = source.partition(":")
    return rest.replace(":", " ") if kind == "process" else source
