"""A session's result in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from firsttoken.tune.records import Row, Tuned
from firsttoken.tune.unrest import disturbed_sentence
from firsttoken.tune.verdict_words import answer, interval, percent

_STYLES = {"helps": "green", "hurts": "red", "equivalent": "dim", "undecided": "yellow"}


def print_tuned(console: Console, tuned: Tuned) -> None:
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for head in ("Knob", "Verdict", "Gain", "Interval", "Predicted", "Kept"):
        table.add_column(head)
    for row in tuned.rows:
        if row.verdict is not None or row.measured is not None:
            table.add_row(*_cells(row))
    console.print(table)
    for row in tuned.rows:
        if row.refused:
            console.print(Text(f"{row.label}: {row.refused}", style="dim"), soft_wrap=True)
    if tuned.disturbed:
        console.print(Text(disturbed_sentence(tuned).en, style="dim"), soft_wrap=True)
    console.print()
    console.print(Text(answer(tuned).en, style="bold"), soft_wrap=True)
    console.print(Text(tuned.command), soft_wrap=True)


def _cells(row: Row) -> list[str | Text]:
    verdict = row.verdict or ""
    return [
        row.label,
        Text(verdict, style=_STYLES.get(verdict, "")),
        percent(row.measured.gain) if row.measured else "–",
        interval(row.measured) if row.measured else "–",
        percent(row.predicted) if row.predicted is not None else "–",
        "kept" if row.kept else "",
    ]
