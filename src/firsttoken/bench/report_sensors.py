"""The report's part on GPU, host and processes beside the run."""

from __future__ import annotations

from html import escape

from firsttoken.bench import figures
from firsttoken.bench.records import RunResult
from firsttoken.bench.report_parts import figure
from firsttoken.bench.words import Words

_QUANTITIES: dict[str, tuple[Words, Words, float]] = {
    "gpu_percent": (Words("GPU busy", "GPU 忙碌时间"), Words("% of time", "时间占比 %"), 1),
    "memory_percent": (Words("GPU memory busy", "显存忙碌时间"), Words("% of time", "时间占比 %"), 1),
    "memory_used_bytes": (Words("Memory in use", "内存/显存用量"), Words("GiB", "GiB"), 1 / 2**30),
    "rss_bytes": (Words("Memory of processes", "各进程内存"), Words("GiB", "GiB"), 1 / 2**30),
    "power_w": (Words("Power", "功率"), Words("Watts", "瓦"), 1),
    "sm_clock_mhz": (Words("Core clock", "核心频率"), Words("MHz", "MHz"), 1),
    "memory_clock_mhz": (Words("Memory clock", "显存频率"), Words("MHz", "MHz"), 1),
    "temperature_c": (Words("Temperature", "温度"), Words("°C", "°C"), 1),
    "cpu_percent": (
        Words("CPU", "CPU"),
        Words("% (host: of all cores; processes: of one)", "%（主机按全部核，进程按单核）"),
        1,
    ),
}
"""By the sensor's name: caption, axis, and what a value is multiplied with. Other sensors are counters."""


def sensor_section(result: RunResult) -> str:
    """One chart a quantity, over the whole run, and the reasons for which clocks were held back."""
    read, marks = figures.sensors(result), figures.scenario_starts(result)
    parts = []
    for name, (caption, unit, scale) in _QUANTITIES.items():
        series = {source: points for source, points in read.get(name, {}).items() if len(points) > 1}
        if series:
            label = f"sensor-{name}"
            only = figures.source_name(*series).html if len(series) == 1 else ""  # several have a legend
            chart = figures.sensor_chart(series, unit, scale, marks, label)
            parts.append(figure(label, caption, chart, note=only))
    if not parts:
        return ""
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
