"""Values that commands read from flags and config files: numbers, token counts, byte sizes, JSON objects."""

from __future__ import annotations

import json
import re
from typing import Any

import click

_TOKEN_UNITS = {"": 1, "k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}  # as vLLM reads them
_BYTE_UNITS = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1000,
    "kib": 1024,
    "m": 1000**2,
    "mb": 1000**2,
    "mib": 1024**2,
    "g": 1000**3,
    "gb": 1000**3,
    "gib": 1024**3,
    "t": 1000**4,
    "tb": 1000**4,
    "tib": 1024**4,
}


class IntRange(click.IntRange):
    """A whole number; click itself calls what is none "not a valid integer range"."""

    name = "integer"


class FloatRange(click.FloatRange):
    """A number; click itself calls what is none "not a valid float range"."""

    name = "number"


class TokenCount(click.ParamType):  # type: ignore[type-arg]  # generic in click's newest versions only
    """`4096`, `32k` (32,000), `32K` (32,768), or `auto`, which is None."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        text = str(value).strip()
        if text == "auto":
            return None
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmM]?)", text)
        count = round(float(match[1]) * _TOKEN_UNITS[match[2]]) if match else 0
        if count < 1:
            self.fail(
                f"{value!r} is not a number of tokens; write 4096, 32k (32,000), 32K (32,768) or auto.", param, ctx
            )
        return count


class ByteSize(click.ParamType):  # type: ignore[type-arg]  # generic in click's newest versions only
    """`1073741824`, `1GiB`, `1.5 GB`."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", str(value).strip())
        unit = _BYTE_UNITS.get(match[2].lower()) if match else None
        size = round(float(match[1]) * unit) if match and unit else 0
        if size < 1:
            self.fail(f"{value!r} is not a size; write bytes, or a unit such as 500MB or 2GiB.", param, ctx)
        return size


def in_units(size: int) -> str:
    """Bytes as `ByteSize` reads them: 8MiB."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


class RowCounts(click.ParamType):  # type: ignore[type-arg]  # generic in click's newest versions only
    """`1,2,16`: in order, each once; a list in a config file."""

    name = "counts"

    def __init__(self, most: int) -> None:
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        words = value if isinstance(value, (tuple, list)) else str(value).split(",")
        parts = [str(part).strip() for part in words]
        if not parts or not all(part.isdecimal() and 1 <= int(part) <= self._most for part in parts):
            self.fail(f"{value!r} is not a list of row counts from 1 to {self._most}; write 1,2,16.", param, ctx)
        return tuple(sorted({int(part) for part in parts}))


class JsonObject(click.ParamType):  # type: ignore[type-arg]  # generic in click's newest versions only
    """A JSON object; a table in a config file."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError as error:
                self.fail(f"{value!r} is not JSON ({error}).", param, ctx)
        if not isinstance(value, dict):
            self.fail(f"{value!r} is not a JSON object.", param, ctx)
        return value
