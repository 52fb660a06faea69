"""Puts settings back to what a journal says that they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken.doctor.tuning.journal import Entry, Journal
from firsttoken.doctor.tuning.knob import FindKnob, Knob, shown


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of one entry. `well` is false for what is still to be put back."""

    entry: Entry
    well: bool
    text: str


def restore(journal: Journal, find: FindKnob, *, forced: bool) -> list[Restored]:
    """Puts everything back, the last change first, and keeps in the journal what could not be.

    `forced` also puts back what somebody else has changed since. The caller holds the journal. Running it twice, or
    after a crash at any moment, does no harm: a setting that is as it was before is left alone.
    """
    entries, same_boot = journal.read()
    if not same_boot:  # none of these settings outlives one
        journal.write([])
        return [Restored(entry, True, "was given up by the machine's restart") for entry in reversed(entries)]
    found = put_back(entries, find, forced=forced)
    failed = [one.entry for one in found if not one.well]
    journal.write([entry for entry in entries if entry in failed])
    return found


def put_back(entries: Sequence[Entry], find: FindKnob, *, forced: bool) -> list[Restored]:
    """The same without a journal."""
    return [_one(entry, find(entry.kind, entry.target), forced) for entry in reversed(entries)]


def _one(entry: Entry, knob: Knob | None, forced: bool) -> Restored:
    if knob is None:
        return Restored(entry, False, "is not there now")
    try:
        now = knob.read()
        if now == entry.before:
            return Restored(entry, True, f"is {shown(knob, entry.before)}, as before")
        if now is not None and now != entry.after and not forced:
            text = f"is {shown(knob, now)}, which doctor did not set: left alone (--force puts it back)"
            return Restored(entry, False, text)
        knob.write(entry.before)
        problem = knob.problem(entry.before)
    except OSError as error:
        problem = str(error)
    if problem is not None:
        return Restored(entry, False, f"could not be put back to {shown(knob, entry.before)}: {problem}")
    return Restored(entry, True, f"is back at {shown(knob, entry.before)}")
