"""A load without a card."""

from __future__ import annotations


class ShortLoad:
    """Works for so many readings."""

    def __init__(self, readings: int = 8, why_not: str | None = None) -> None:
        self.left, self.why_not, self.stopped = readings, why_not, 0

    def start(self) -> None:
        if self.why_not is not None:
            raise OSError(self.why_not)

    def working(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def stop(self) -> None:
        self.stopped += 1
