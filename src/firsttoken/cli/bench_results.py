"""`firsttoken bench report`, and how every benchmark ends: a table, files, an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from firsttoken.cli.bench_options import EXISTING, FILE

if TYPE_CHECKING:
    from rich.console import Console

    from firsttoken.bench.records import RunResult

_WIDTH = 120  # columns where there is no terminal to ask


def terminal() -> Console:
    """Where results are printed."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH)


def finish(console: Console, result: RunResult, path: Path, with_csv: bool) -> int:
    """Prints the table, writes the page and CSV beside the result file, and returns the exit code."""
    from firsttoken.bench.report import write_report
    from firsttoken.bench.table import print_run, run_level

    page = path.with_suffix(".html")
    write_report(page, result)
    console.print()
    print_run(console, result)
    written = [path, page, *(_csv(path.with_suffix(".csv"), result) if with_csv else [])]
    console.print(f"Written: {', '.join(map(str, written))}", style="dim", markup=False, soft_wrap=True)
    return 1 if run_level(result) == "fail" else 0


@click.command()
@click.argument("result", type=EXISTING)
@click.option("--html", type=FILE, help="Where the page goes.  [default: beside the result]")
@click.option("--csv", type=FILE, help="Write the scenarios here, and the requests beside it.")
def report(result: Path, html: Path | None, csv: Path | None) -> None:
    """Make the table, the HTML page and CSV of a result file again."""
    from firsttoken.bench.report import write_report
    from firsttoken.bench.result_file import load_result
    from firsttoken.bench.table import print_run

    console = terminal()
    loaded = load_result(result)
    page = html or result.with_suffix(".html")
    write_report(page, loaded)
    print_run(console, loaded)
    written = [page, *(_csv(csv, loaded) if csv else [])]
    console.print(f"Written: {', '.join(map(str, written))}", style="dim", markup=False, soft_wrap=True)


def _csv(path: Path, result: RunResult) -> tuple[Path, Path]:
    from firsttoken.bench.csv_export import write_csv

    return write_csv(path, result)
