"""What `firsttoken kernels measure` prints: a line a launch, and what becomes of the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table as Grid

from firsttoken.kernels.gpu.launch import Product
from firsttoken.kernels.gpu.search import Found
from firsttoken.kernels.gpu.step_search import Settled


def grid(found: Sequence[Found], settled: Sequence[Settled], read: float, layers: int) -> Grid:
    """A line a product and row count, one for all products of a step of so many rows, and one for the whole step."""
    whole = {step.rows: step for step in settled}
    table = Grid(caption=f"Share: of the {read / 1e12:.2f} TB/s that this card reads, measured just now")
    for title in ("product", "rows", "launch"):
        table.add_column(title, no_wrap=title != "launch")
    for title in ("µs", "TB/s", "share", "before, µs", "tried"):
        table.add_column(title, justify="right", no_wrap=True)
    for rows in sorted({each.job.rows for each in found}):
        here = [each for each in found if each.job.rows == rows]
        for each in here:
            rate = each.job.weight_bytes / each.us * 1e6
            change = "the same" if each.best == each.before else f"{each.before_us:.1f}"
            if each.before_us == float("inf"):
                change = "failed"  # it did not run here, or gave wrong numbers
            figures = (f"{each.us:.1f}", f"{rate / 1e12:.2f}", f"{rate / read:.0%}", change)
            table.add_row(each.job.name, str(rows), words(each.best), *figures, f"{each.tried} of {each.possible}")
        times = [(layers if each.job.name != "head" else 1, each) for each in here]
        us = sum(count * each.us for count, each in times)
        rate = sum(count * each.job.weight_bytes for count, each in times) / us * 1e6
        all_of = (f"all of a step, {layers} layers", str(rows), "", f"{us:,.0f}", f"{rate / 1e12:.2f}")
        table.add_row(*all_of, f"{rate / read:.0%}", "", "", end_section=rows not in whole)
        if step := whole.get(rows):
            rate = step.read_bytes / step.us * 1e6
            change = "the same" if step.is_the_same else f"{step.before_us:,.0f}"
            figures = (f"{step.us:,.0f}", f"{rate / 1e12:.2f}", f"{rate / read:.0%}", change)
            table.add_row("whole step", str(rows), "", *figures, f"{step.tried} steps", end_section=True)
    return table


def words(product: Product) -> str:
    """A launch in a few words."""
    p = product
    if p.form == "library":
        return "library"
    tile = f"{p.form} {p.bn}x{p.bk}, {p.warps} warps"
    if p.form in ("matvec", "fixed"):
        return f"{tile}, {p.ahead} ahead"
    splits = f", {p.splits} parts" if p.splits > 1 else ""
    return f"{tile}, {p.stages} stages{splits}{f', prefetch {p.prefetch}' if p.prefetch else ''}"


def advice(found: Sequence[Found], file: Path, *, ours: bool) -> str:
    """What was written, who reads it, and what else can be done with it."""
    changed = sum(each.best != each.before for each in found)
    lines = [f"Written: {file} ({changed} of {len(found)} launches changed)"]
    if ours:
        lines.append("`firsttoken serve` takes these from its next start on; delete the file to go back.")
    else:
        lines.append("`firsttoken serve` does not look there; without --out the file goes where it does.")
    lines.append(
        "To give them to everyone with this card, copy the file to src/firsttoken/kernels/gpu/tables/ in a clone, run "
        "the tests in tests/kernels on the card, and open a pull request."
    )
    return "\n".join(lines)
