"""Numbers as the findings write them."""

from __future__ import annotations

_GIB = 1024**3


def gibibytes(size: float) -> str:
    """Bytes as "7.5 GiB", small sizes as "512 MiB"."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / 1024**2:.0f} MiB"


def count(number: int, noun: str) -> str:
    """ "1 core", "2 cores"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def tally(counted: dict[str, int]) -> str:
    """ "performance" where all agree, else "powersave (12), performance (4)"."""
    if len(counted) == 1:
        return next(iter(counted))
    return ", ".join(f"{name} ({number})" for name, number in sorted(counted.items(), key=lambda one: -one[1]))
