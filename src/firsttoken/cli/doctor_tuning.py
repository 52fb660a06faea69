"""`firsttoken doctor apply` and `restore`: change host settings after a question, and put them back."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firsttoken.cli.option_types import IntRange
from firsttoken.errors import ConfigError

if TYPE_CHECKING:
    from firsttoken.doctor.tuning.wishes import Settings

_JOURNAL = click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where what was before is kept.  [default: /var/lib/firsttoken/tuning.json]",
)


@click.command(short_help="Change host settings, after showing them and asking.")
@click.option("--persistence/--no-persistence", default=None, help="Whether the driver keeps an unused card.")
@click.option("--power-limit", metavar="WATTS", help="The most a card may draw, or default.")
@click.option("--lock-clocks", "clocks", metavar="MHZ", help="SM clock: 1980, 1200-1980, or free to give it back.")
@click.option("--governor", help="How the system clocks its cores, such as performance.")
@click.option("--gpu", "cards", type=IntRange(0), multiple=True, help="This card alone; several times for several.")
@click.option("--dry-run", is_flag=True, help="Show the changes, and make none.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_JOURNAL
def apply(cards: tuple[int, ...], dry_run: bool, yes: bool, journal: Path | None, **wanted: Any) -> int:
    """Change host settings for speed, after showing them and asking.

    Without an option that names a setting: what `firsttoken doctor` would mend, which is persistence, a lowered power
    limit and a slow CPU governor. With some: those and no others. What was before is written down first, each change is
    read back, and one that fails undoes the others. Settings last until the machine restarts; `firsttoken doctor
    restore` puts them back. No card is ever reset.
    """
    from firsttoken.cli.bench_results import terminal
    from firsttoken.doctor.tuning.journal import DEFAULT, Journal, this_boot
    from firsttoken.doctor.tuning.session import apply_session
    from firsttoken.doctor.tuning.wishes import Wishes
    from firsttoken.machine.processor import read_processor

    with _settings() as settings:
        changes = settings.plan(Wishes(cards=cards, **_plain(wanted)), read_processor())
        return apply_session(
            terminal(),
            changes,
            Journal(journal or DEFAULT, this_boot()),
            _command(),
            _agreement(yes),
            only_show=dry_run,
        )


@click.command(short_help="Put back what `doctor apply` changed.")
@click.option("--force", is_flag=True, help="Also what somebody else has changed since.")
@_JOURNAL
def restore(force: bool, journal: Path | None) -> int:
    """Put back what `firsttoken doctor apply` changed, also after a crash of it.

    Exits with 1 where something could not be put back; that stays written down.
    """
    from firsttoken.cli.bench_results import terminal
    from firsttoken.doctor.tuning.journal import DEFAULT, Journal, this_boot
    from firsttoken.doctor.tuning.session import restore_session

    with _settings() as settings:
        kept = Journal(journal or DEFAULT, this_boot())
        return restore_session(terminal(), kept, settings.find, _command(), forced=force)


@contextmanager
def _settings() -> Iterator[Settings]:
    """This machine's; without a driver those of its cores alone."""
    from firsttoken.doctor.tuning.wishes import Settings
    from firsttoken.machine.driver import open_nvml

    try:
        nvml = open_nvml()
    except OSError:
        yield Settings(None, os.geteuid() == 0)
        return
    try:
        yield Settings(nvml, os.geteuid() == 0)
    finally:
        nvml.nvmlShutdown()


def _plain(wanted: dict[str, Any]) -> dict[str, Any]:
    """Values as the knobs write them: no spaces, no units."""
    limit, clocks = wanted["power_limit"], wanted["clocks"]
    return wanted | {
        "power_limit": None if limit is None else limit.strip().removesuffix("W").strip(),
        "clocks": None if clocks is None else clocks.replace(" ", "").replace(",", "-").removesuffix("MHz"),
    }


def _agreement(yes: bool) -> Callable[[], bool]:
    if yes:
        return lambda: True
    return _ask


def _ask() -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("Nothing was changed: there is no terminal to ask at; add --yes.")
    return click.confirm("Change these?", default=False)


def _command() -> str:
    """This command with its program's whole path: root's own path may lack it."""
    program = Path(sys.argv[0])
    start = [sys.executable, "-m", "firsttoken"] if program.name == "__main__.py" else [str(program.resolve())]
    return shlex.join([*start, *sys.argv[1:]])
