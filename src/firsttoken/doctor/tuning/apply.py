"""Makes planned changes: journal first, then one after the other, each verified; a failure puts all of them back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firsttoken.doctor.tuning.journal import Entry, Journal
from firsttoken.doctor.tuning.knob import FindKnob
from firsttoken.doctor.tuning.restore import Restored, put_back
from firsttoken.doctor.tuning.wishes import Change
from firsttoken.errors import FirstTokenError


class ApplyFailed(FirstTokenError):
    """A change was refused or did not hold; `restored` says what became of those before it."""

    def __init__(self, message: str, restored: Sequence[Restored]) -> None:
        super().__init__(message)
        self.restored = restored


def apply(changes: Sequence[Change], journal: Journal, done: Callable[[Change], object]) -> None:
    """Makes `changes` in their order; `done` is told of each when it is verified.

    The caller holds the journal. It keeps the value that a setting had before the first of several runs. Raises
    ApplyFailed after putting this run's changes back, and OSError where the journal cannot be written (nothing is
    changed then).
    """
    earlier, same_boot = journal.read()
    if not same_boot:
        earlier = []  # what they changed, the restart has undone
    journal.write(merged(earlier, changes))
    made: list[Change] = []
    for change in changes:
        try:
            change.knob.write(change.after)
            made.append(change)
            problem = change.knob.problem(change.after)
        except OSError as error:
            problem = str(error)
        if problem is not None:
            restored = put_back([_entry(one) for one in made], _finder(made), forced=True)
            failed = {(one.entry.kind, one.entry.target) for one in restored if not one.well}
            left = [one for one in changes if (one.knob.kind, one.knob.target) in failed]
            journal.write(merged(earlier, left))
            raise ApplyFailed(f"{change.knob.label} could not be changed: {problem}.", restored)
        done(change)


def merged(earlier: Sequence[Entry], changes: Sequence[Change]) -> list[Entry]:
    """The journal for both, with each setting's oldest value before; what is back at it stands there too."""
    entries = {(one.kind, one.target): one for one in earlier}
    for change in changes:
        fresh = _entry(change)
        known = entries.get((fresh.kind, fresh.target))
        before = fresh.before if known is None else known.before
        entries[fresh.kind, fresh.target] = Entry(fresh.kind, fresh.target, fresh.label, before, fresh.after)
    return list(entries.values())


def _entry(change: Change) -> Entry:
    return Entry(change.knob.kind, change.knob.target, change.knob.label, change.before, change.after)


def _finder(changes: Sequence[Change]) -> FindKnob:
    knobs = {(one.knob.kind, one.knob.target): one.knob for one in changes}
    return lambda kind, target: knobs.get((kind, target))
