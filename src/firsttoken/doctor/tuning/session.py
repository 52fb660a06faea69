"""`doctor apply` and `doctor restore` as a conversation: what would change, a question, what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from firsttoken.doctor.tuning.apply import ApplyFailed, apply
from firsttoken.doctor.tuning.card_knobs import ClockLock
from firsttoken.doctor.tuning.journal import Journal
from firsttoken.doctor.tuning.knob import FindKnob, shown
from firsttoken.doctor.tuning.restore import Restored, restore
from firsttoken.doctor.tuning.wishes import Change, why_no_rights
from firsttoken.errors import ConfigError


def apply_session(
    console: Console,
    changes: Sequence[Change],
    journal: Journal,
    command: str,
    agree: Callable[[], bool],
    *,
    only_show: bool,
) -> int:
    """Shows the changes, asks, makes them; returns the exit code.

    `command` is how this was called. Raises ConfigError without rights, and where the journal cannot be written.
    """
    if not changes:
        console.print("Nothing to change: all is as wished.")
        return 0
    console.print(Text("Would change" if only_show else "To change", style="bold"))
    _show(console, changes)
    if only_show:
        return 0
    if (reason := why_no_rights(changes)) is not None:
        raise ConfigError(f"Nothing was changed: {reason}. Run: sudo {command}")
    if not agree():
        console.print("Nothing was changed.")
        return 1

    def tell(one: Change) -> None:
        _line(console, True, one.knob.label, f"is {shown(one.knob, one.after)}")

    try:
        with journal.held():
            apply(changes, journal, tell)
    except ApplyFailed as failed:
        _tell(console, failed.restored)
        raise
    except KeyboardInterrupt:
        raise ConfigError("Stopped half-way; `firsttoken doctor restore` puts back what was changed.") from None
    except OSError as error:
        raise ConfigError(f"Nothing was changed: the journal {journal.path} cannot be written ({error}).") from None
    text = f"Done. `firsttoken doctor restore` puts all back; what was before is kept in {journal.path}."
    console.print(text, soft_wrap=True, markup=False)
    return 0


def restore_session(console: Console, journal: Journal, find: FindKnob, command: str, *, forced: bool) -> int:
    """Puts all back and says what came of each; the exit code is 1 where something is still to be put back.

    Raises ConfigError without rights.
    """
    entries, _ = journal.read()
    if not entries:
        console.print(f"Nothing to put back: there is no journal at {journal.path}.", soft_wrap=True, markup=False)
        return 0
    knobs = [find(entry.kind, entry.target) for entry in entries]
    reason = next((reason for knob in knobs if knob is not None and (reason := knob.why_no_rights())), None)
    if reason is not None:
        raise ConfigError(f"Nothing was put back: {reason}. Run: sudo {command}")
    try:
        with journal.held():
            found = restore(journal, find, forced=forced)
    except OSError as error:
        raise ConfigError(f"The journal {journal.path} cannot be written ({error}); run this again.") from None
    _tell(console, found)
    if all(one.well for one in found):
        return 0
    console.print(f"The rest is still in {journal.path}; run this again.", soft_wrap=True, markup=False)
    return 1


def _show(console: Console, changes: Sequence[Change]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in ("  setting", "now", "then"):
        table.add_column(name, overflow="fold")
    for one in changes:
        table.add_row(f"  {one.knob.label}", shown(one.knob, one.before), shown(one.knob, one.after))
    console.print(table)
    if any(isinstance(one.knob, ClockLock) for one in changes):
        note = "  A clock lock cannot be read: one that somebody else has set will be gone after a restore."
        console.print(Text(note, style="dim"), soft_wrap=True)
    console.print()


def _tell(console: Console, found: Sequence[Restored]) -> None:
    for one in found:
        _line(console, one.well, one.entry.label, one.text)


def _line(console: Console, well: bool, label: str, text: str) -> None:
    mark = ("  ok    ", "green") if well else ("  BAD   ", "bold red")
    console.print(Text.assemble(mark, f"{label}  {text}"), soft_wrap=True)
