"""`firsttoken kernels`: the launch shapes of the GPU kernels on the card at hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

_MAX_ROWS = 64  # beyond them every product is the library's


class Seconds(click.ParamType):  # type: ignore[type-arg]  # generic in click's newest versions only
    """`90`, `90s`, `2m`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min)?", str(value).strip())
        seconds = float(match[1]) * (60 if match[2] in ("m", "min") else 1) if match else 0.0
        if seconds <= 0:
            self.fail(f"{value!r} is not a time; write 90, 90s or 2m.", param, ctx)
        return seconds


class RowCounts(click.ParamType):  # type: ignore[type-arg]  # generic in click's newest versions only
    """`1,2,16`: in order, each once."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(part.isdecimal() and 1 <= int(part) <= _MAX_ROWS for part in parts):
            self.fail(f"{value!r} is not a list of row counts from 1 to {_MAX_ROWS}; write 1,2,16.", param, ctx)
        return tuple(sorted({int(part) for part in parts}))


@click.group()
def kernels() -> None:
    """Measure how the GPU kernels are best launched on this card."""


@kernels.command(short_help="Find the fastest launches on this card.")
@click.argument("model", default="Qwen/Qwen3-4B-Instruct-2507")
@click.option(
    "--rows",
    type=RowCounts(),
    default="1,2,4,8,16,32",
    show_default=True,
    help="Rows to measure: sequences that decode at once.",
)
@click.option(
    "--quantization",
    type=click.Choice(["auto", "fp8", "int8", "int4"]),
    default="auto",
    show_default=True,
    help="Form of the weights: the checkpoint's own, or what `serve` rounds them to.",
)
@click.option("--budget", type=Seconds(), default="120s", show_default=True, help="How long to search, about.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write here, not where `serve` looks.")
@click.option("--processes", type=click.IntRange(1), help="Compile so many at once.  [default: by cores and memory]")
@click.option(
    "--hub",
    type=click.Choice(["huggingface", "modelscope"]),
    default="huggingface",
    show_default=True,
    help="Where a repository's config is fetched from.",
)
def measure(
    model: str,
    rows: tuple[int, ...],
    quantization: str,
    budget: float,
    out: Path | None,
    processes: int | None,
    hub: str,
) -> None:
    """Find the fastest launches of MODEL's products on this card, and write them where `serve` looks for them.

    MODEL is as for `serve`; only its config is read, and weights are made up. Launches compile side by side, then run
    one by one over weights that are in no cache. One replaces the launch in use where it is faster by more than 1 % and
    gives the reference's numbers. Stop what else runs on the card first.
    """
    from firsttoken.cli.measured_launches import measure_launches, open_card
    from firsttoken.kernels.quant_linear import QUANT_FORMS
    from firsttoken.model.config import load_config
    from firsttoken.model.hub import resolve

    with open_card(processes) as opened:  # first: without a card nothing need be fetched
        config = load_config(resolve(model, hub=hub, weights=False))
        form = QUANT_FORMS.get(quantization)
        measure_launches(_console(), config, rows, opened, budget=budget, out=out, form=form)


def _console() -> Console:
    from firsttoken.cli.bench_results import terminal

    return terminal()
