"""The flags of `firsttoken bench run`, and what the benchmark's parts take from them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firsttoken.cli.grouped_options import apply_options
from firsttoken.cli.grouped_options import grouped_option as _option
from firsttoken.cli.option_types import FloatRange, IntRange, JsonObject

if TYPE_CHECKING:
    from firsttoken.bench.roofline_judge import GivenRates
    from firsttoken.bench.wanted import Wanted

Command = Callable[..., Any]

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
EXISTING = click.Path(path_type=Path, exists=True)
POSITIVE = FloatRange(0, min_open=True)


class NumberList(click.ParamType):  # type: ignore[type-arg]  # generic in click's newest versions only
    """`1,4,16`: numbers above zero, each once."""

    name = "numbers"

    def __init__(self, kind: type[int] | type[float]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(self._kind(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 1,4,16.", param, ctx)
        if min(numbers) <= 0 or len(set(numbers)) < len(numbers):
            self.fail(f"{value!r} must be numbers above zero, each once.", param, ctx)
        return numbers


_SERVER = [
    _option(
        "Server", "--url", default="http://127.0.0.1:8000", show_default=True, help="The server's root, or its /v1."
    ),
    _option("Server", "--model", help="The name to ask for; the server's first when left out."),
    _option("Server", "--api-key", envvar="OPENAI_API_KEY", help="The server's key.  [env: OPENAI_API_KEY]"),
    _option("Server", "--insecure", is_flag=True, help="Accept any TLS certificate."),
    _option(
        "Server",
        "--ready-timeout",
        type=POSITIVE,
        default=1800.0,
        show_default=True,
        help="Seconds from launch to ready.",
    ),
    _option(
        "Server",
        "--request-timeout",
        type=POSITIVE,
        default=600.0,
        show_default=True,
        help="Seconds without a byte after which a request has failed.",
    ),
    _option("Server", "--extra-body", type=JsonObject(), help="JSON fields joined into every request."),
]

_SIDES = [
    _option("Sides", "--a", required=True, metavar="COMMAND", help="The server as it is."),
    _option("Sides", "--b", required=True, metavar="COMMAND", help="The server as it could be."),
    _option(
        "Sides",
        "--pairs",
        type=IntRange(1),
        default=8,
        show_default=True,
        help="Eight find a difference of 3 % where runs vary by 1 %.",
    ),
    _option(
        "Sides",
        "--margin",
        type=FloatRange(0, 1, min_open=True, max_open=True),
        default=0.02,
        show_default=True,
        help="Sides this close count as the same.",
    ),
    _option("Sides", "--out", type=FOLDER, required=True, help="A folder for the pairs; what broke off there goes on."),
]

_WORK = [
    _option(
        "What is sent",
        "--scenario",
        "names",
        multiple=True,
        metavar="NAME",
        help="What to measure (see `bench scenarios`); several times for several, or `all`.",
    ),
    _option("What is sent", "--scenario-file", type=EXISTING, help="Scenarios of your own, in TOML or JSON."),
    _option(
        "What is sent",
        "--input-len",
        type=IntRange(1),
        metavar="TOKENS",
        help="Generated prompts of this length.",
    ),
    _option("What is sent", "--output-len", type=IntRange(1), metavar="TOKENS", help="Answers of this length."),
    _option(
        "What is sent",
        "--shared-prefix-len",
        type=IntRange(1),
        metavar="TOKENS",
        help="How much of every prompt is the same, to measure prefix reuse.",
    ),
    _option("What is sent", "--dataset", type=EXISTING, help="Prompts from a JSONL or ShareGPT file."),
    _option(
        "What is sent",
        "--seed",
        type=int,
        help="Of the prompts; drawn anew when left out, so that no run meets what another left in a cache.",
    ),
]

_LOAD = [
    _option(
        "Load",
        "--concurrency",
        type=NumberList(int),
        default=(),
        help="Closed loop: requests in flight; 1,4,16 is a sweep.",
    ),
    _option(
        "Load",
        "--rate",
        type=NumberList(float),
        default=(),
        help="Open loop: requests a second; 2,4,8 is a sweep.",
    ),
    _option(
        "Load", "--arrivals", type=click.Choice(["poisson", "constant"]), help="Of an open loop; poisson when left out."
    ),
    _option("Load", "--trace", type=EXISTING, help="Open loop: a file of send times in seconds, one a line."),
    _option("Load", "--requests", type=IntRange(1), help="Measured requests a scenario."),
    _option("Load", "--duration", type=POSITIVE, metavar="SECONDS", help="Time in which measured requests may start."),
    _option("Load", "--warm-up", type=IntRange(0), help="Requests before the measured ones."),
    _option("Load", "--processes", type=IntRange(1), help="Client processes; by load and cores when left out."),
]

_FIGURES = [
    _option(
        "Figures and ceilings",
        "--slo",
        metavar="LIMITS",
        help="ttft=500ms,tpot=50ms counts the requests that met them all (goodput).",
    ),
    _option(
        "Figures and ceilings",
        "--tokenizer",
        type=EXISTING,
        help="A tokenizer.json that counts where the server does not.",
    ),
    _option(
        "Figures and ceilings",
        "--model-config",
        type=EXISTING,
        help="The model's config.json or folder, for the ceilings.",
    ),
    _option(
        "Figures and ceilings",
        "--kv-element-bytes",
        type=POSITIVE,
        default=2.0,
        show_default=True,
        help="Of the KV cache; 1 for fp8.",
    ),
    _option(
        "Figures and ceilings",
        "--memory-gb-s",
        type=POSITIVE,
        help="The memory's ceiling in GB/s; measured when left out.",
    ),
    _option(
        "Figures and ceilings",
        "--product-tflop-s",
        type=POSITIVE,
        help="A product's ceiling in TFLOP/s; measured when left out.",
    ),
    _option(
        "Figures and ceilings",
        "--gpus",
        type=IntRange(1),
        default=1,
        show_default=True,
        help="GPUs over which the model is split.",
    ),
    _option(
        "Figures and ceilings",
        "--tokens-per-step",
        type=FloatRange(1),
        default=1.0,
        show_default=True,
        help="On average, where the server speculates.",
    ),
]


_RESULTS = [
    _option("Results", "--out", type=FILE, help="A run that broke off there is resumed.  [default: bench/TIME.json]"),
    _option("Results", "--csv", "with_csv", is_flag=True, help="Write CSV files too."),
]


def launch_option(command: Command) -> Command:
    """A server of the run's own."""
    help = "Start this server first, time its start, and stop it at the end."
    return apply_options([_option("Server", "--launch", metavar="COMMAND", help=help)], command)


def side_options(command: Command) -> Command:
    """The two servers of an experiment."""
    return apply_options(_SIDES, command)


def server_options(command: Command) -> Command:
    return apply_options(_SERVER, command)


def work_options(command: Command) -> Command:
    """What is sent, and at what load."""
    return apply_options([*_WORK, *_LOAD], command)


def result_options(command: Command) -> Command:
    """Where the results go."""
    return apply_options(_RESULTS, command)


def figure_options(command: Command) -> Command:
    """What the figures are held against."""
    return apply_options(_FIGURES, command)


def wanted_of(options: dict[str, Any]) -> Wanted:
    """Load and lengths that were asked for."""
    from firsttoken.bench.wanted import Wanted

    return Wanted(
        concurrencies=options["concurrency"],
        rates=options["rate"],
        arrivals=options["arrivals"],
        trace=options["trace"],
        requests=options["requests"],
        duration=options["duration"],
        warm_up=options["warm_up"],
        input_tokens=options["input_len"],
        output_tokens=options["output_len"],
        shared_tokens=options["shared_prefix_len"],
        dataset=options["dataset"],
    )


def given_rates(options: dict[str, Any]) -> GivenRates:
    from firsttoken.bench.roofline_judge import GivenRates

    memory, product = options["memory_gb_s"], options["product_tflop_s"]
    return GivenRates(read=memory and memory * 1e9, product=product and product * 1e12)


def command_line() -> list[str]:
    """This process's command for the record, without keys."""
    from firsttoken.bench.key_hiding import hide_keys

    words = sys.argv[1:]
    return [
        "firsttoken",
        *("…" if before == "--api-key" else hide_keys(word) for before, word in pairwise(["", *words])),
    ]
