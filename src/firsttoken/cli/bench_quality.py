"""`firsttoken bench quality`: how far one way of running a model is from another, and what it saves."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from firsttoken.cli.bench_options import FILE, NumberList
from firsttoken.cli.bench_results import terminal
from firsttoken.cli.option_types import IntRange
from firsttoken.errors import ConfigError

if TYPE_CHECKING:
    from firsttoken.quality.work import Settings

_COMMAND = ["firsttoken", "serve"]
_OF_LLM = ("hub", "revision", "download_dir", "chat_template")  # flags of `serve` beside the engine's


@click.command(short_help="Measure how far one form of a model is from another.")
@click.option("--a", required=True, metavar="SETTINGS", help="The reference: what `firsttoken serve` would be given.")
@click.option("--b", required=True, metavar="SETTINGS", help="The same for what is judged.")
@click.option("--tokens", type=IntRange(2), default=512, show_default=True, help="Of each of the nine texts, at most.")
@click.option(
    "--decode-tokens",
    type=IntRange(1),
    default=32,
    show_default=True,
    help="Of each text that go through one a step, as when decoding.",
)
@click.option("--answer-tokens", type=IntRange(2), default=64, show_default=True, help="Of each of the twelve answers.")
@click.option(
    "--needle-lengths",
    type=NumberList(int),
    default=(),
    help="Tokens of the texts in which a number is hidden.  "
    "[default: 512,2048,4096 on a CPU, 2048,8192,32768 on a GPU]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--out", type=FILE, help="Write the JSON here too.")
def quality(
    a: str,
    b: str,
    tokens: int,
    decode_tokens: int,
    answer_tokens: int,
    needle_lengths: tuple[int, ...],
    as_json: bool,
    out: Path | None,
) -> None:
    """Measure how far B's answers are from A's, beside its speed and memory.

    SETTINGS are a model and flags of `serve`: --a "demo --dtype float32" --b demo. Both run in this machine's engine,
    one after the other and without a server, since the whole distribution of every token is compared. A against itself
    in company gives the floor.
    """
    import msgspec

    from firsttoken.quality.run import compare_quality
    from firsttoken.quality.table import print_quality
    from firsttoken.quality.work import Amount

    amount = Amount(
        tokens=tokens, decoded=decode_tokens, answer_tokens=answer_tokens, lengths=tuple(sorted(needle_lengths))
    )
    sides = settings_of(a, "--a"), settings_of(b, "--b")
    for side in sides:  # a name that is wrong, or a download, comes before the minutes that A takes
        fetch(side)
    found = compare_quality(*sides, amount, lambda text: click.echo(text, err=True))
    content = msgspec.json.format(msgspec.json.encode(found), indent=1).decode()
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(content + "\n")
    if as_json:
        click.echo(content)
    else:
        print_quality(terminal(), found)


def fetch(side: Settings) -> None:
    """Fetches a side's model where it must be. Raises ModelError, DownloadError or ConfigError."""
    from firsttoken.model.hub import resolve

    of = side.options
    weights = of.get("load_format") != "dummy"
    resolve(side.model, hub=of["hub"], revision=of["revision"], cache_dir=of["download_dir"], weights=weights)


def settings_of(text: str, flag: str) -> Settings:
    """What `serve` would make of the words. Raises UsageError as it does, and ConfigError without a model."""
    from firsttoken.cli.options import engine_config
    from firsttoken.cli.serve import serve
    from firsttoken.quality.work import Settings

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{flag} cannot be split into words ({error}): close its quotation marks.") from None
    if words[:2] == _COMMAND:
        words = words[2:]
    values = serve.make_context("firsttoken serve", words).params
    if not values["model"]:
        raise ConfigError(f'{flag} names no model: write it first, as in {flag} "demo --dtype float32".')
    model = values.pop("model")
    options = asdict(engine_config(values))
    for name in ("model", "path", "max_queue"):
        del options[name]
    return Settings(text, model, options | {name: values[name] for name in _OF_LLM})
