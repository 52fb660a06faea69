#!/usr/bin/env python3
"""Writes docs/reference/cli.md from the commands themselves; with --check only says whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from firsttoken.cli.main import COMMANDS, cli

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
INTRO = """# Command line

Made by `scripts/cli_reference.py` from the commands themselves; edit those, not this page.
"""


def main() -> int:
    page = render()
    if "--check" not in sys.argv[1:]:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page)
        return 0
    if PAGE.exists() and PAGE.read_text() == page:
        return 0
    print("docs/reference/cli.md is not current: run scripts/cli_reference.py")
    return 1


def render() -> str:
    parent = click.Context(cli, info_name="firsttoken", terminal_width=100, **cli.context_settings)
    parts = [INTRO, f"```\n{cli.get_help(parent)}\n```\n"]
    for name in COMMANDS:
        command = cli.get_command(parent, name)
        assert command is not None
        parts += sections(command, name, parent)
    return "\n".join(parts)


def sections(command: click.Command, name: str, parent: click.Context) -> list[str]:
    """The command's own section, and one for each command of a group."""
    context = click.Context(command, info_name=name, parent=parent, max_content_width=100, terminal_width=100)
    found = [f"## {context.command_path}\n\n```\n{command.get_help(context)}\n```\n"]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            one = command.get_command(context, inner)
            assert one is not None
            found += sections(one, inner, context)
    return found


if __name__ == "__main__":
    sys.exit(main())
