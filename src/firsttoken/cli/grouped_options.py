"""Options under the titles of their groups in a command's help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

_C = TypeVar("_C", bound=Callable[..., Any])


class GroupedOption(click.Option):
    """An option that belongs to one section of the help."""

    def __init__(self, *args: Any, group: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class GroupedCommand(click.Command):
    """Prints the options in the order and under the titles of their groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if not isinstance(parameter, click.Option):
                continue  # the text above the options speaks of MODEL
            if (record := parameter.get_help_record(ctx)) is not None:
                groups.setdefault(getattr(parameter, "group", "Other"), []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=34)


def grouped_option(group: str, *names: str, **kwargs: Any) -> Callable[[Any], Any]:
    """As click.option, under the title `group`."""
    return click.option(*names, cls=GroupedOption, group=group, **kwargs)


def apply_options(options: Sequence[Callable[[Any], Any]], command: _C) -> _C:
    """Decorates a command function with them, so that its help has them in their order."""
    for option in reversed(options):
        command = option(command)
    return command
