"""`--config FILE`: the flags' own names and values, in TOML or JSON. A flag on the command line wins."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from firsttoken.errors import ConfigError


def load_defaults(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """Callback of the eager `--config` option: makes the file's values the defaults of the other options."""
    if path is not None and not ctx.resilient_parsing:
        values = read_config(Path(path))
        ctx.default_map = {**(ctx.default_map or {}), **_by_parameter(ctx, values, path)}
    return path


def read_config(path: Path) -> Mapping[str, Any]:
    """The file's top-level table. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
        match path.suffix.lower():
            case ".toml":
                values = tomllib.loads(text)
            case ".json":
                values = json.loads(text)
            case _:
                raise ConfigError(f"The config file {path} must end in .toml or .json.")
    except (OSError, ValueError) as error:
        raise ConfigError(f"The config file {path} cannot be read: {error}.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"The config file {path} must hold one object with a key for each flag.")
    return values


def _by_parameter(ctx: click.Context, values: Mapping[str, Any], path: str) -> dict[str, Any]:
    known = _keys(ctx.command)
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("_", "-")
        if name not in known:
            if isinstance(value, dict):
                raise ConfigError(
                    f"The config file {path} has a section [{key}]; write its keys without one, at the top."
                )
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`firsttoken serve --help` lists the names."
            raise ConfigError(f"The config file {path} has an unknown key {key!r}; {hint}")
        parameter, negated = known[name]
        assert parameter.name is not None
        if isinstance(parameter, click.Option) and parameter.is_flag and not isinstance(value, bool):
            raise ConfigError(f"In the config file {path}, {key!r} must be true or false.")
        if getattr(parameter, "multiple", False) and not isinstance(value, list):
            value = [value]
        try:
            parameter.type_cast_value(ctx, value)
        except click.BadParameter as error:  # click would name the flag, which nobody typed
            raise ConfigError(f"In the config file {path}, {key!r}: {error.message}") from None
        found[parameter.name] = not value if negated else value
    return found


def _keys(command: click.Command) -> dict[str, tuple[click.Parameter, bool]]:
    """Every key that a file may hold, with its parameter and whether its value means the opposite."""
    keys: dict[str, tuple[click.Parameter, bool]] = {}
    for parameter in command.params:
        if parameter.name in ("config", "help"):
            continue
        for flags, negated in ((parameter.opts, False), (parameter.secondary_opts, True)):
            keys |= {flag.lstrip("-"): (parameter, negated) for flag in flags}
    return keys
