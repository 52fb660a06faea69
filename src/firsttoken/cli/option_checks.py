"""Callbacks of flags whose values a type alone cannot check."""

from __future__ import annotations

import json
import re

import click


def metric_prefix(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", value):
        raise click.BadParameter("a metric's prefix has letters, digits and underscores only.")
    return value


def api_keys(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """An empty key, as of a shell variable that is not set, would let everybody in who sends none."""
    if not all(re.fullmatch(r"[!-~]+", value) for value in values):
        raise click.BadParameter("a key has at least one character, and only ASCII ones without spaces.")
    return values


def key_file(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A file that is no use is told before anything starts."""
    if value is not None:
        from firsttoken.server.api_keys import read_keys

        read_keys(value)
    return value


def origins(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Also vLLM's form, one JSON list."""
    if len(values) == 1 and values[0].startswith("["):
        try:
            values = tuple(json.loads(values[0]))
        except ValueError:
            raise click.BadParameter(f"{values[0]!r} is not a JSON list.") from None
    for value in values:
        if not re.fullmatch(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+", str(value)):
            raise click.BadParameter(f"{value!r} is no origin; write scheme://host or scheme://host:port, or *.")
    return values
