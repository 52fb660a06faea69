"""What one check found: a reading, a verdict, why it matters and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "bad", "unread"]
"""`unread` is a reading that this machine does not give: neither good nor bad."""

_WORST_FIRST: tuple[Verdict, ...] = ("bad", "warn", "ok", "unread")
_EXIT_CODES: dict[Verdict, int] = {"ok": 0, "unread": 0, "warn": 3, "bad": 4}  # 1 and 2 are errors of the command


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's outcome. `fix` is empty where there is nothing to do."""

    area: str  # the heading that it stands under: "driver", "card 0", "host"
    check: str  # "persistence"
    verdict: Verdict
    reading: str  # what was read, with its unit
    why: str  # why it matters, in a sentence or two
    fix: str = ""  # what to do, with the command


def worst(findings: Iterable[Finding]) -> Verdict:
    """The worst verdict among them; `unread` only where nothing could be read."""
    found = {one.verdict for one in findings}
    return next((verdict for verdict in _WORST_FIRST if verdict in found), "unread")


def exit_code(findings: Iterable[Finding]) -> int:
    """0 where nothing is worse than ok, 3 for a warning, 4 for something bad."""
    return _EXIT_CODES[worst(findings)]
