"""`firsttoken kernels`: the launch shapes of the GPU kernels on the card at hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firsttoken.cli.option_types import IntRange, RowCounts

if TYPE_CHECKING:
    from rich.console import Console

_MAX_ROWS = 64  # beyond them every product is the library's
_PROCESSES = click.option(
    "--processes", type=IntRange(1), help="Compile so many at once.  [default: by cores and memory]"
)
_HUB = click.option(
    "--hub",
    type=click.Choice(["huggingface", "modelscope"]),
    default="huggingface",
    show_default=True,
    help="Where a repository's config is fetched from.",
)


class Seconds(click.ParamType):  # type: ignore[type-arg]  # generic in click's newest versions only
    """`90`, `90s`, `2m`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min)?", str(value).strip())
        seconds = float(match[1]) * (60 if match[2] in ("m", "min") else 1) if match else 0.0
        if seconds <= 0:
            self.fail(f"{value!r} is not a time; write 90, 90s or 2m.", param, ctx)
        return seconds


@click.group()
def kernels() -> None:
    """Compile the GPU kernels ahead of time, or measure how they are best launched on this card."""


@kernels.command(short_help="Find the fastest launches on this card.")
@click.argument("model", default="Qwen/Qwen3-4B-Instruct-2507")
@click.option(
    "--rows",
    type=RowCounts(_MAX_ROWS),
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
@_PROCESSES
@_HUB
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
    one by one over weights that are in no cache. The few fastest that give the reference's numbers then meet in whole
    decode steps, and one replaces the launch in use where the step is faster by more than 0.2 %. Where the card does
    not hold the whole model, it must be faster alone, by more than 1 %. Stop what else runs on the card first.
    """
    from firsttoken.cli.measured_launches import measure_launches, open_card
    from firsttoken.kernels.quant_forms import QUANT_FORMS
    from firsttoken.model.config import load_config
    from firsttoken.model.hub import resolve

    with open_card(processes) as opened:  # first: without a card nothing need be fetched
        config = load_config(resolve(model, hub=hub, weights=False))
        form = QUANT_FORMS.get(quantization)
        measure_launches(_console(), config, rows, opened, budget=budget, out=out, form=form)


def _as_serve(flag: str, *, default: Any = None, type: Any) -> Callable[[Any], Any]:
    by_card = default is None
    help = f"As for `serve`.{'  [default: by the card]' if by_card else ''}"
    return click.option(flag, type=type, default=default, show_default=not by_card, help=help)


@kernels.command("compile", short_help="Compile a server's kernels for a card, here or elsewhere.")
@click.argument("model", default="Qwen/Qwen3-4B-Instruct-2507")
@click.option("--gpu", required=True, metavar="CARD", help="The card, such as h200 or 4090d; it need not be here.")
@_as_serve("--dtype", type=click.Choice(["auto", "bfloat16", "float16"]), default="auto")
@_as_serve("--quantization", type=click.Choice(["auto", "none", "fp8", "int8", "int4"]), default="auto")
@_as_serve("--kv-cache-dtype", type=click.Choice(["auto", "none", "fp8", "fp8_e4m3"]), default="auto")
@_as_serve("--block-size", type=IntRange(1), default=16)
@_as_serve("--max-num-seqs", type=IntRange(1))
@_as_serve("--max-num-batched-tokens", type=IntRange(1))
@click.option("--cudagraph-capture-sizes", type=RowCounts(4096), help="As for `serve`.")
@_as_serve("--launch-table", type=str, default="auto")
@_PROCESSES
@_HUB
def compile_(model: str, gpu: str, processes: int | None, hub: str, **settings: Any) -> None:
    """Compile all kernels that a server of MODEL needs on a card, so that its first start there compiles none.

    MODEL is as for `serve`; its weights are not read. No GPU is needed, so this can be a step of an image's build. The
    kernels go where Triton keeps them: ~/.triton/cache, or the folder that TRITON_CACHE_DIR names.
    """
    from firsttoken.machine.cards import find_card

    card = find_card(gpu, otherwise="A first start on another card compiles what it needs by itself.")
    from firsttoken.cli.compiled_kernels import compile_kernels, facts, settings_of
    from firsttoken.config import EngineConfig
    from firsttoken.model.hub import resolve

    config = EngineConfig(model=model, path=str(resolve(model, hub=hub, weights=False)), **settings)
    compile_kernels(_console(), *settings_of(config, card), facts(card), processes)


def _console() -> Console:
    from firsttoken.cli.bench_results import terminal

    return terminal()
