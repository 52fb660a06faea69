"""A trace's finding in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from firsttoken.bench import units
from firsttoken.doctor.trace.verdict import TraceFinding

_GAPS_SHOWN = 6


def print_finding(console: Console, name: str, finding: TraceFinding, top: int) -> None:
    """Verdict first, then time, ops and gaps."""
    trace, summary = finding.trace, finding.summary
    steps = f"{summary.steps} steps" if finding.marked else "no marked steps, so all of it as one"
    where = trace.device_name or ("a GPU" if trace.on_gpu else "the host")
    others = f", the busiest of {trace.devices}" if trace.devices > 1 else ""
    console.print(Text(f"{name}: {steps}, on {where}{others}", style="bold"), soft_wrap=True)
    console.print(Text(finding.verdict), soft_wrap=True)
    console.print(Text.assemble(("Next: ", "bold"), finding.advice), soft_wrap=True)
    console.print()
    console.print(_time(finding))
    console.print(_ops(finding, top))
    if trace.on_gpu and summary.gaps:
        console.print(_gaps(finding))


def _table(*head: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for i, name in enumerate(head):
        table.add_column(name, justify="right" if i else "left")
    return table


def _time(finding: TraceFinding) -> Table:
    summary = finding.summary
    table = _table("", "a step" if finding.marked else "in all", "share")
    rest = "gaps" if finding.trace.on_gpu else "outside of them"
    ran = "busy" if finding.trace.on_gpu else "in torch's ops"
    rows = [("wall", summary.wall), (ran, summary.busy), (rest, summary.wall - summary.busy)]
    if finding.marked and finding.trace.on_gpu:
        rows += [("  between steps", summary.idle_between_steps), ("  within steps", summary.idle_within_steps)]
    for name, total in rows:
        table.add_row(name, units.seconds(total / summary.steps / 1e6), units.percent(total / summary.wall))
    if finding.step_share is not None and finding.ceilings is not None:
        wall = summary.wall / summary.steps / 1e6
        name = f"at the ceilings of {finding.ceilings.device}"
        table.add_row(name, units.seconds(finding.step_share * wall), units.percent(finding.step_share))
    if summary.paused:
        table.add_row("pauses, left out", units.seconds(summary.paused / 1e6), "")
    return table


def _ops(finding: TraceFinding, top: int) -> Table:
    summary, shares = finding.summary, finding.shares()
    table = _table("op", "calls", "µs", "own µs", "share", "of its ceiling")
    for op in summary.ops[:top]:
        table.add_row(
            Text(op.name, overflow="fold"),
            units.digits(op.calls / summary.steps),
            units.digits(op.total / summary.steps),
            units.digits(op.own / summary.steps),
            units.percent(op.own / summary.wall),
            units.percent(shares.get(op.name)),
        )
    return table


def _gaps(finding: TraceFinding) -> Table:
    summary = finding.summary
    table = _table("gap, from → to", "times", "µs")
    for gap in summary.gaps[:_GAPS_SHOWN]:
        ends = f"{gap.after or 'the beginning'} → {gap.before}"
        table.add_row(ends, units.digits(gap.times / summary.steps), units.digits(gap.total / summary.steps))
    return table
