"""The small files in which the kernel tells its state, under /proc and /sys."""

from __future__ import annotations

from pathlib import Path


def read_file(path: Path) -> str | None:
    """Its text without blanks around it; None where there is none, or not for this user."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def pressure(path: Path) -> float | None:
    """Per cent of the last ten seconds in which somebody waited, from a file of /proc/pressure."""
    for line in (read_file(path) or "").splitlines():
        kind, *pairs = line.split()
        if kind == "some":
            return float(dict(pair.split("=") for pair in pairs)["avg10"])
    return None
