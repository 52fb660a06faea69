"""Stop strings over a stream of text: nothing of one is ever let through, however the text is cut into pieces."""

from __future__ import annotations

import re
from collections.abc import Sequence


class StopStrings:
    """Lets text through up to the earliest place where a stop string begins.

    The result is a function of the text alone: of several matches the one that begins first wins, and of those the
    shortest, whatever their order in the list and wherever the pieces end. So where one stop string is found while an
    earlier, longer one may yet complete, the decision waits for the next piece (or `finish`).
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        self.matched: str | None = None
        self._stops = sorted(set(stops), key=len)
        self._include = include
        self._held = ""  # a proper prefix of some stop string, or of more text that begins with one
        self._may_begin = re.compile("[" + "".join(re.escape(stop[0]) for stop in self._stops) + "]").search

    def push(self, text: str) -> str:
        """Text that may be sent now; "" once a stop string has matched."""
        if not self._held and not self._may_begin(text):
            return "" if self.matched is not None else text
        if self.matched is not None:
            return ""
        text = self._held + text
        match = self._earliest(text)
        hold = self._hold_from(text)
        if match is not None and match[0] <= hold:
            return self._cut(text, *match)
        self._held = text[hold:]
        return text[:hold]

    def finish(self) -> str:
        """What was held back, when no more text comes."""
        text, self._held = self._held, ""
        match = self._earliest(text)
        return text if match is None else self._cut(text, *match)

    def _cut(self, text: str, at: int, stop: str) -> str:
        self.matched, self._held = stop, ""
        return text[: at + len(stop)] if self._include else text[:at]

    def _earliest(self, text: str) -> tuple[int, str] | None:
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        return min(found, key=lambda match: match[0]) if found else None  # min keeps the first, so the shortest

    def _hold_from(self, text: str) -> int:
        """The earliest place from which the text to its end is the beginning of a stop string."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:size]):
                    longest = size
                    break
        return len(text) - longest
