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
        size = next((size for size in range(len(self._tag) - 1, 0, -1) if text.endswith(self._tag[:size])), 0)
        self._held = text[len(text) - size :]
        return text[: len(text) - size], None

    def finish(self) -> str:
        """What was held back, as no tag came."""
        held, self._held = self._held, ""
        return held
