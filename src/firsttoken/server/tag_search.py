"""A fixed text, looked for in text that comes in pieces."""

from __future__ import annotations


class TagSearch:
    """Holds back what may be the tag's beginning, and nothing else."""

    __slots__ = ("_held", "_tag")

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """The text before the tag as far as it is certain, and what is behind the tag, or None without one."""
        text = self._held + text
        before, found, behind = text.partition(self._tag)
        if found:
            self._held = ""
            return before, behind
        place = text.find(self._tag[0], max(0, len(text) - len(self._tag) + 1))
        while place >= 0 and not self._tag.startswith(text[place:]):
            place = text.find(self._tag[0], place + 1)
        if place < 0:
            self._held = ""
            return text, None
        self._held = text[place:]
        return text[:place], None

    def finish(self) -> str:
        """What was held back, as no tag came."""
        held, self._held = self._held, ""
        return held
