"""A diagnosis in a terminal: what the server does, beside what it could, the verdict and the change."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from firsttoken.bench import units
from firsttoken.doctor.live.diagnosis import Diagnosis
from firsttoken.doctor.live.judge import Verdict
from firsttoken.doctor.live.remedy import Remedy

_STYLES: dict[Verdict, str] = {
    "idle": "green",
    "memory-bound": "green",
    "compute-bound": "green",
    "queue-bound": "yellow",
    "KV-bound": "yellow",
    "host-bound": "yellow",
    "throttled": "red",
    "undecided": "dim",
}


def shown(head: str, diagnosis: Diagnosis) -> RenderableType:
    """Everything, `head` first."""
    return Group(Text(head, style="bold"), _figures(diagnosis), *_shares(diagnosis), _verdict(diagnosis))


def _figures(diagnosis: Diagnosis) -> Table:
    figures = diagnosis.figures()

    def per_second(name: str) -> str:
        return units.rate(figures[name])

    kv, hits = figures["kv_cache_usage"], figures["prefix_cache_hit_rate"]
    rows = [
        (
            "requests",
            f"{units.digits(diagnosis.window.running)} running, {units.digits(diagnosis.window.waiting)} queued",
        ),
        ("KV cache", f"{units.percent(kv)} held, {per_second('preemptions_per_s')} preempted/s"),
        ("prefix cache", f"{units.percent(hits)} of prompt tokens found"),
        ("prefill, decode", f"{per_second('prefill_tokens_per_s')}, {per_second('decode_tokens_per_s')} tok/s"),
        ("step", f"{units.seconds(figures['step_s'])}, {units.rate(figures['tokens_per_step'])} tokens"),
        ("TTFT, TPOT", f"{units.seconds(figures['ttft_s'])}, {units.seconds(figures['tpot_s'])}"),
        ("busy", units.percent(figures["active_share"])),
    ]
    if diagnosis.window.waited is not None:
        rows.append(("host waits for device", units.percent(diagnosis.window.waited)))
    sensors = diagnosis.sensors
    if sensors is not None and sensors.sm_clock_mhz is not None:
        rows.append(("GPU", f"{sensors.sm_clock_mhz:.0f} MHz, {units.digits(sensors.power_w or 0.0)} W"))
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="dim"), value)
    return table


def _shares(diagnosis: Diagnosis) -> list[RenderableType]:
    load, ceilings = diagnosis.finding.load, diagnosis.bounds.ceilings
    table = Table.grid(padding=(0, 2))
    if load is not None:
        table.add_row(*_bar("reads", load.read_bytes, None if ceilings is None else ceilings.read, "B/s"))
        table.add_row(*_bar("computes", load.flops, None if ceilings is None else ceilings.product, "FLOP/s"))
    if ceilings is not None:
        when = f", measured on {ceilings.measured_on}" if ceilings.measured_on else ""
        table.add_row(Text("ceilings", style="dim"), "", f"{ceilings.device}{when}")
    missing = [Text(text, style="dim") for text in diagnosis.bounds.missing]
    return [table, *missing]


def _bar(name: str, rate: float | None, ceiling: float | None, unit: str) -> tuple[RenderableType, ...]:
    label = Text(name, style="dim")
    if rate is None:
        return label, "", "unknown"
    if ceiling is None:
        return label, "", f"{units.scaled(rate, unit)}, ceiling unknown"
    bar = ProgressBar(total=1.0, completed=min(rate / ceiling, 1.0), width=24)
    return label, bar, f"{units.percent(rate / ceiling)} of {units.scaled(ceiling, unit)}"


def _verdict(diagnosis: Diagnosis) -> Panel:
    finding, change = diagnosis.finding, diagnosis.remedy
    lines = [Text(text) for text in finding.evidence]
    lines.append(Text.assemble(("Change: ", "bold"), change.change))
    if change.gain is not None:
        lines.append(Text.assemble(("Predicted: ", "bold"), predicted(change)))
    style = _STYLES[finding.verdict]
    return Panel(
        Group(*lines), title=Text(finding.verdict, style=f"bold {style}"), title_align="left", border_style=style
    )


def predicted(change: Remedy) -> str:
    """ "1.42 times the tok/s, by the roofline"."""
    assert change.gain is not None
    return f"{'at most ' if change.at_most else ''}{units.digits(change.gain)} times the {change.of}, by {change.basis}"
