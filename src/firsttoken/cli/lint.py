"""`firsttoken lint`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from firsttoken.cli.option_types import ByteSize

if TYPE_CHECKING:
    from firsttoken.doctor.lint.table import Flag, FlagTable, Kind
    from firsttoken.model.config import ModelConfig


@click.command(context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True})
@click.option(
    "--file",
    "paths",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    multiple=True,
    help="Check a file instead; - is standard input.",
)
@click.option("--gpu", metavar="NAME", help="The card that the commands are for, such as 4090 or 'A100 80GB'.")
@click.option("--memory", type=ByteSize(), help="That card's memory, such as 24GiB, instead of its name.")
@click.option("--vllm-version", metavar="VERSION", help="Check against this vLLM.  [default: the newest that is known]")
@click.option(
    "--sglang-version", metavar="VERSION", help="Check against this SGLang.  [default: the newest that is known]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def lint(
    command: tuple[str, ...],
    paths: tuple[str, ...],
    gpu: str | None,
    memory: int | None,
    vllm_version: str | None,
    sglang_version: str | None,
    as_json: bool,
) -> int:
    """Check launch commands: unknown, removed, contradictory, useless and harmful settings, each with the right one.

    Give a COMMAND after `--`, a file (a script, a shell history, a compose file, a Python or Markdown file), or pipe
    text in. Knows vLLM, SGLang, firsttoken, transformers snippets, nvidia-smi, cpupower, docker run and some more.
    Exits with 0 when nothing is worse than a note, 3 for what does nothing or harm, 4 for what fails.
    """
    import sys

    from firsttoken.cli.bench_results import terminal
    from firsttoken.doctor.lint.linter import Linter
    from firsttoken.doctor.lint.report import as_data, exit_code, print_checked
    from firsttoken.doctor.lint.sources import check_source
    from firsttoken.errors import ConfigError
    from firsttoken.machine.cards import find_card

    card = find_card(gpu) if gpu else None
    versions = {"vllm": vllm_version, "sglang": sglang_version}
    linter = Linter(
        firsttoken=own_table,
        config_of=shapes,
        memory=memory or (card.memory if card else None),
        card=card.short_name if card and memory is None else "",
        versions={name: version for name, version in versions.items() if version},
    )
    one = command[0] if len(command) == 1 else ""
    if one and not paths and Path(one).is_file():
        command, paths = (), (one,)
    found = linter.check_words(list(command)) if command else []
    if one and command and not any(checked.program for checked in found) and _names_a_file(one):
        raise ConfigError(f"There is no file {one} to check.")
    for path in paths:
        text = sys.stdin.read() if path == "-" else _text(Path(path))
        found += check_source(linter, text, path)
    if not command and not paths:
        if sys.stdin.isatty():
            raise click.UsageError("Give a command after --, a file, or pipe text in: firsttoken lint -- vllm serve …")
        found = check_source(linter, sys.stdin.read(), "-")
    if not found and command:
        raise ConfigError("There is no command to check.")
    if as_json:
        import json

        click.echo(json.dumps(as_data(found), indent=2, ensure_ascii=False))
    else:
        print_checked(terminal(), found)
    return exit_code(found)


def _names_a_file(word: str) -> bool:
    return len(word.split()) == 1 and ("/" in word or Path(word).suffix != "")


def _text(path: Path) -> str:
    from firsttoken.errors import ConfigError

    if path.stat().st_size > 16 << 20:
        raise ConfigError(f"{path} is larger than 16 MiB; give lint the commands alone.")
    return path.read_text(encoding="utf-8", errors="replace")


def shapes(model: str) -> ModelConfig | None:
    """The shapes of a model that is known by name, or of a folder or file that is here."""
    from firsttoken.doctor.fit.named import named_config
    from firsttoken.errors import FirstTokenError
    from firsttoken.model.config import load_config

    path = Path(model)
    if path.is_dir() or (path.suffix == ".gguf" and path.is_file()):
        try:
            return load_config(path)
        except FirstTokenError:
            return None  # what it lacks is told when it is served
    return named_config(model)


def own_table(words: list[str]) -> tuple[FlagTable | None, int, str]:
    """This program's command that the words name: its flags, where they begin, and else what is wrong."""
    from firsttoken.cli.main import cli
    from firsttoken.doctor.lint.table import Flag, FlagTable, nearest
    from firsttoken.version import __version__

    command: click.Command = cli
    start = 1
    while isinstance(command, click.Group) and start < len(words) and not words[start].startswith("-"):
        context = click.Context(command)
        inner = command.get_command(context, words[start])
        if inner is None:
            names = command.list_commands(context)
            near = nearest(words[start], names)
            return None, start, f"The nearest is {near}." if near else f"There are {', '.join(names)}."
        command, start = inner, start + 1
    flags: dict[str, Flag] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            flag = _flag(parameter)
            flags |= dict.fromkeys((flag.name, *flag.also), flag)
    help_flag = Flag(name="--help", kind="switch", also=("-h",))
    flags |= {"--help": help_flag, "-h": help_flag}
    counts = [parameter.nargs for parameter in command.params if isinstance(parameter, click.Argument)]
    positional = None if -1 in counts else sum(counts)
    return FlagTable(program="firsttoken", version=__version__, flags=flags, positional=positional), start, ""


def _flag(option: click.Option) -> Flag:
    from firsttoken.doctor.lint.table import Flag

    name, *also = sorted(option.opts, key=len, reverse=True)
    if option.is_flag:
        return Flag(name=name, kind="on-off" if option.secondary_opts else "switch", also=tuple(also))

    def check(value: str) -> str | None:
        if isinstance(option.type, click.Path | click.File):
            return None  # whether it is there is no question of the command's form
        try:
            option.type.convert(value, option, None)
        except click.BadParameter as error:
            return error.message
        return None

    choices = tuple(map(str, option.type.choices)) if isinstance(option.type, click.Choice) else ()
    kind: Kind = "str"  # its own type says what is wrong with a value
    return Flag(name=name, kind=kind, also=tuple(also), choices=choices, check=check, repeats=option.multiple)
