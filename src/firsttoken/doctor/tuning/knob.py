"""One setting of the host that can be read, changed and changed back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Knob(Protocol):
    """A setting; values are text in one canonical form, so that two of them can be compared."""

    @property
    def kind(self) -> str: ...  # "power limit"

    @property
    def target(self) -> str: ...  # what it is a setting of, by a name that stays: a card's UUID

    @property
    def label(self) -> str: ...  # for people: "card 0: power limit"

    @property
    def unit(self) -> str: ...  # written behind a value: " W"

    def read(self) -> str | None:
        """The value now; None where the machine has no way to tell. Raises OSError."""

    def why_not(self, value: str) -> str | None:
        """Why `value` must not be set: out of range, or no such value here. None where it may."""

    def why_no_rights(self) -> str | None:
        """Why this user cannot change it; None where he can, as far as can be told before trying."""

    def write(self, value: str) -> None:
        """Changes it. Raises OSError, in its words, where the machine refuses; it is as it was then."""

    def problem(self, value: str) -> str | None:
        """Why the machine does not do what `value` says although it was written; None where it does."""


def shown(knob: Knob, value: str) -> str:
    """A value for people: a number with its unit, a word alone."""
    return f"{value}{knob.unit}" if value[:1].isdigit() else value


FindKnob = Callable[[str, str], Knob | None]
"""The knob of a kind and a target on this machine, None where there is none (any more)."""
