"""Numbers as people read them: three significant digits with a unit, the same in the terminal and on the page."""

from __future__ import annotations

import math

NOTHING = "–"


def digits(value: float, significant: int = 3) -> str:
    """Thousands with commas, `significant` digits below that: 12,345 · 12.3 · 0.0123."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else NOTHING
    rounded = float(f"{value:.{significant - 1}e}")  # first, since 9.996 becomes one digit longer
    places = significant - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(places, 0)}f}"


def seconds(value: float | None) -> str:
    """In milliseconds below one second, in seconds below ten minutes, in minutes above."""
    if value is None:
        return NOTHING
    if abs(value) < 0.9995:
        return f"{digits(value * 1000)} ms"
    return f"{digits(value)} s" if abs(value) < 600 else f"{digits(value / 60)} min"


def count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """A number a second, without its unit."""
    return NOTHING if value is None else digits(value)


def percent(value: float | None) -> str:
    """A share as a percentage: 0.123 is "12.3 %", 0.5 "50 %"."""
    if value is None:
        return NOTHING
    return f"{value * 100:.0f} %" if abs(value) >= 0.0995 or value == 0 else f"{value * 100:.1f} %"


def size(value: float | None) -> str:
    """Bytes in binary units."""
    if value is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{digits(value)} {unit}"
        value /= 1024
    return f"{digits(value)} TiB"


def scaled(value: float, unit: str) -> str:
    """With a decimal prefix, as rates of memory and arithmetic are given: 3.57 TB/s."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= factor:
            return f"{digits(value / factor)} {prefix}{unit}"
    return f"{digits(value)} {unit}"
