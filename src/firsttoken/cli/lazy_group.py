"""A click group that imports a command's module only to run it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

Commands = Mapping[str, tuple[str, str, str]]
"""name: (module, the command's name in it, one line of help); the line saves importing the module for --help."""


class LazyGroup(click.Group):
    """Knows its commands' names and help lines from `lazy`, and loads one only to run it."""

    def __init__(self, *args: Any, lazy: Commands, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module, attribute, _ = self.lazy[cmd_name]
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.lazy and not name.startswith("-"):
            near = get_close_matches(name, self.lazy, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else f"The commands are {', '.join(self.lazy)}."
            raise click.UsageError(f"No such command '{name}'. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.lazy:
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in self.lazy.items()])
