"""`firsttoken bench report` and `compare`, and how every run ends: a table, files, an exit code."""

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
    from firsttoken.bench.table import print_run

    console = terminal()
    loaded = load_measured(result)
    page = html or result.with_suffix(".html")
    write_report(page, loaded)
    print_run(console, loaded)
    written = [page, *(_csv(csv, loaded) if csv else [])]
    console.print(f"Written: {', '.join(map(str, written))}", style="dim", markup=False, soft_wrap=True)


@click.command(short_help="Print results side by side.")
@click.argument("results", type=EXISTING, nargs=-1, required=True)
@click.option("--label", "labels", multiple=True, help="A name for each result, in order.  [default: the files' names]")
def compare(results: tuple[Path, ...], labels: tuple[str, ...]) -> None:
    """Print results side by side: A B [C…], or the folder of a `bench ab`.

    Results of separate runs are shown without a claim, since machines drift. A folder that `bench ab` filled holds
    pairs, and gets intervals and verdicts.
    """
    from firsttoken.bench import compare as comparisons
    from firsttoken.bench.ab import compare_folder
    from firsttoken.bench.result_file import load_result
    from firsttoken.bench.table import print_comparison

    if len(results) == 1 and results[0].is_dir():
        print_comparison(terminal(), compare_folder(results[0]))
        return
    if labels and len(labels) != len(results):
        raise click.UsageError("Give one --label for each result, or none.")
    names = list(labels) or [path.stem for path in results]
    if len(set(names)) < len(names):
        names = [str(path.with_suffix("")) for path in results]
    print_comparison(terminal(), comparisons.compare([load_result(path) for path in results], names))


def load_measured(path: Path) -> RunResult:
    """A result with figures for what broke off, too: a killed run leaves records and no figures."""
    from firsttoken.bench.broken_off import judge_broken_off
    from firsttoken.bench.result_file import load_result

    result = load_result(path)
    judge_broken_off(result)
    return result


def _csv(path: Path, result: RunResult) -> tuple[Path, Path]:
    from firsttoken.bench.csv_export import write_csv

    return write_csv(path, result)
