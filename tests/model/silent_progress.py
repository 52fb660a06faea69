"""A Progress that shows nothing and keeps what it was told."""

from __future__ import annotations


class Silent:
    def __init__(self) -> None:
        self.started: list[tuple[str, int]] = []
        self.seen: list[int] = []
        self.finished = 0

    def start(self, label: str, total: int) -> None:
        self.started.append((label, total))

    def advance(self, done: int) -> None:
        self.seen.append(done)

    def finish(self) -> None:
        self.finished += 1
