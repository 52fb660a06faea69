"""What a server's processes hold: memory, files and threads."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

_NAMES = {"firsttoken.engine.process": "engine", "firsttoken.server.worker": "API worker"}


@dataclass(frozen=True, slots=True)
class Reading:
    rss: int  # bytes
    files: int
    threads: int


class Processes:
    """The supervisor and its children, as they are now."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)

    def of(self, name: str) -> list[psutil.Process]:
        """Children that play that part."""
        return [child for child in self._root.children() if _part(child) == name]

    def readings(self) -> dict[str, Reading]:
        """By part and pid."""
        found = {f"supervisor {self._root.pid}": self._root}
        found |= {f"{_part(child)} {child.pid}": child for child in self._root.children()}
        return {name: _read(process) for name, process in found.items()}


def growth(before: dict[str, Reading], after: dict[str, Reading]) -> dict[str, float]:
    """MB that each process grew by; both readings are of the same processes."""
    assert before.keys() == after.keys(), f"processes came or went: {sorted(before)}, then {sorted(after)}"
    return {name: (after[name].rss - before[name].rss) / 1e6 for name in before}


def _part(process: psutil.Process) -> str:
    command = process.cmdline()
    return next((name for module, name in _NAMES.items() if module in command), "another")


def _read(process: psutil.Process) -> Reading:
    with process.oneshot():
        return Reading(process.memory_info().rss, process.num_fds(), process.num_threads())
