"""`firsttoken tune report`."""

from __future__ import annotations

from pathlib import Path

import click

from firsttoken.cli.bench_options import FOLDER


@click.command(short_help="Make the page of a finished session again.")
@click.argument("folder", type=FOLDER, default="tune")
def report(folder: Path) -> None:
    """Make the page, the config and the table of the session in FOLDER again."""
    from firsttoken.cli.bench_results import terminal
    from firsttoken.tune.outputs import RESULT, write_outputs
    from firsttoken.tune.records import load
    from firsttoken.tune.table import print_tuned

    console = terminal()
    tuned = load(folder / RESULT)
    written = write_outputs(folder, tuned)
    print_tuned(console, tuned)
    console.print(f"Written: {', '.join(map(str, written))}", style="dim", markup=False, soft_wrap=True)
