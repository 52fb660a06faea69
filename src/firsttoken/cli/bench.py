"""`firsttoken bench`: measure any OpenAI-compatible server, with every figure's ceiling beside it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from firsttoken.cli.bench_options import (
    EXISTING,
    POSITIVE,
    command_line,
    figure_options,
    given_rates,
    launch_option,
    result_options,
    server_options,
    side_options,
    wanted_of,
    work_options,
)
from firsttoken.cli.bench_quality import quality
from firsttoken.cli.bench_results import compare, finish, load_measured, report, terminal
from firsttoken.cli.grouped_options import GroupedCommand
from firsttoken.cli.option_types import IntRange

if TYPE_CHECKING:
    from firsttoken.bench.live import LiveView
    from firsttoken.bench.recipe import Recipe
    from firsttoken.bench.records import ServerIdentity
    from firsttoken.bench.roofline_judge import RooflineJudge
    from firsttoken.bench.run import BenchSpec, Judge
    from firsttoken.bench.scenario import Scenario


@click.group()
def bench() -> None:
    """Measure any OpenAI-compatible server, with every figure's ceiling beside it.

    Works with firsttoken, vLLM, SGLang, llama.cpp and their like. `bench run` measures what serves on port 8000.
    """


@bench.command(cls=GroupedCommand)
@launch_option
@server_options
@work_options
@figure_options
@result_options
def run(out: Path | None, with_csv: bool, **options: Any) -> int:
    """Measure a server and write a report.

    With nothing but a URL: the server's first model and a short set of scenarios. A load or lengths without --scenario
    are a scenario by themselves. The results are a JSON file, the raw requests as JSONL and one HTML page, side by
    side. Exits with 1 when a self-check says that the figures must not be used.
    """
    from time import localtime, strftime

    from firsttoken.bench.live import LiveView
    from firsttoken.bench.run import run_scenarios
    from firsttoken.bench.sources import monitor_for

    console = terminal()
    path = out or Path("bench") / f"{strftime('%Y%m%d-%H%M%S', localtime())}.json"
    options["out"] = path
    recipes = chosen(options)
    judge = judges(options)
    try:
        with signals_as_ctrl_c(), LiveView(console) as view:
            spec = spec_of(options, planner(recipes, view))
            roofline, *others = judge()
            result = run_scenarios(
                spec, view, monitor=monitor_for(spec.url), judges=[roofline, *others], before=[roofline.prepare]
            )
    except KeyboardInterrupt:
        kept = load_measured(path) if path.exists() else None
        if kept is not None and any(scenario.records for scenario in kept.scenarios):
            finish(console, kept, path, with_csv)
            again = f"Stopped; what was measured is kept. The same command with --out {path} goes on from there."
            console.print(again, markup=False, soft_wrap=True)
            raise SystemExit(130) from None
        raise
    return finish(console, result, path, with_csv)


def chosen(options: dict[str, Any]) -> list[Recipe]:
    """Named scenarios with the wished changes, or a scenario of the wishes alone. Raises ConfigError."""
    from firsttoken.bench.recipe import load_file
    from firsttoken.bench.scenarios import choose
    from firsttoken.bench.wanted import changed, own_recipe

    own = load_file(options["scenario_file"]) if options["scenario_file"] else None
    wanted = wanted_of(options)
    if wanted.anything and not options["names"] and own is None:
        return [own_recipe(wanted)]
    return [changed(recipe, wanted) for recipe in choose(options["names"], own)]


def planner(recipes: list[Recipe], view: LiveView) -> Callable[[ServerIdentity], list[Scenario]]:
    """Fits the scenarios to the server once it is known, and says what was changed."""
    from firsttoken.bench.events import Note
    from firsttoken.bench.scenarios import plan

    def plan_for(server: ServerIdentity) -> list[Scenario]:
        scenarios, notes = plan(recipes, server.max_model_len)
        for note in notes:
            view(Note(note))
        return scenarios

    return plan_for


def judges(options: dict[str, Any]) -> Callable[[], tuple[RooflineJudge, Judge]]:
    """Makes the further checks of a run. The machine is measured now where a server is still to be started."""
    from firsttoken.bench.arrival_check import judge_arrivals
    from firsttoken.bench.roofline_judge import MachineCeilings, RooflineJudge

    ceilings = MachineCeilings(options["url"], given_rates(options), options["gpus"])
    if options.get("launch"):
        ceilings.prepare()  # before the server takes the card's memory
    return lambda: (
        RooflineJudge(
            ceilings.of,
            options["model_config"],
            kv_element_bytes=options["kv_element_bytes"],
            tokens_per_step=options["tokens_per_step"],
        ),
        judge_arrivals,
    )


def spec_of(options: dict[str, Any], scenarios: Callable[[ServerIdentity], list[Scenario]]) -> BenchSpec:
    """What a run needs, from the flags."""
    from firsttoken.bench.metrics import parse_slo
    from firsttoken.bench.run import BenchSpec

    return BenchSpec(
        url=options["url"],
        scenarios=scenarios,
        model=options["model"],
        out=options["out"],
        api_key=options["api_key"],
        launch=options.get("launch"),
        ready_timeout=options["ready_timeout"],
        request_timeout=options["request_timeout"],
        processes=options["processes"],
        seed=options["seed"],
        slo=parse_slo(options["slo"]) if options["slo"] else {},
        tokenizer=options["tokenizer"],
        verify_tls=not options["insecure"],
        extra_body=options["extra_body"] or {},
        command=command_line(),
    )


@contextmanager
def signals_as_ctrl_c() -> Iterator[None]:
    """SIGTERM and a closed terminal end a run as Ctrl-C does: results kept, the launched server stopped."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@bench.command(cls=GroupedCommand, short_help="Measure two server commands in pairs.")
@side_options
@server_options
@work_options
@figure_options
def ab(a: str, b: str, pairs: int, margin: float, out: Path, **options: Any) -> None:
    """Measure two server commands in pairs, each time on a fresh server.

    Which side goes first is drawn anew for each pair, and both sides of a pair get the same prompts. Both commands must
    serve at --url. Prints each figure's difference with its interval, and whether it may be claimed.
    """
    from firsttoken.bench.ab import measurer, open_experiment, run_ab
    from firsttoken.bench.live import LiveView
    from firsttoken.bench.sources import monitor_for
    from firsttoken.bench.table import print_comparison

    console = terminal()
    recipes = chosen(options)
    experiment = open_experiment(out, a, b, pairs, options["seed"], margin)
    judge = judges({**options, "launch": a})
    with signals_as_ctrl_c(), LiveView(console) as view:
        spec = spec_of({**options, "out": None}, planner(recipes, view))
        measure = measurer(spec, view, lambda: monitor_for(spec.url), judge)
        try:
            found = run_ab(experiment, out, measure, view)
        except KeyboardInterrupt:
            console.print(f"Stopped; finished pairs are kept in {out}. The same command goes on.", markup=False)
            raise
    console.print()
    print_comparison(console, found)


@bench.command()
@click.option("--scenario-file", type=EXISTING, help="Show those of this file instead.")
@click.option("--zh", is_flag=True, help="In Chinese.")
def scenarios(scenario_file: Path | None, zh: bool) -> None:
    """List the scenarios that come with firsttoken."""
    from firsttoken.bench.recipe import load_file
    from firsttoken.bench.scenarios import SHORT_SET, built_in

    for recipe in (load_file(scenario_file) if scenario_file else built_in()).values():
        title = (recipe.title_zh if zh else recipe.title) or recipe.name
        text = recipe.description_zh if zh else recipe.description
        mark = ""
        if recipe.name in SHORT_SET and not scenario_file:
            mark = "（默认会运行）" if zh else " (runs by default)"
        click.echo(f"{recipe.name:<10}  {title}{mark}")
        if text:
            click.echo(f"{'':<12}{text}")


@bench.command()
@click.option("--processes", type=IntRange(1), help="Client processes; half of the cores when left out.")
@click.option("--seconds", type=POSITIVE, default=2.0, show_default=True, help="How long to test.")
def selftest(processes: int | None, seconds: float) -> None:
    """Measure this client's own ceiling: streamed chunks a second."""
    import os

    from firsttoken.bench.workers import ClientPool, allowed_cores, client_cores

    cores = allowed_cores()
    count = processes or max((len(cores) or os.cpu_count() or 1) // 2, 1)
    with ClientPool(count, client_cores(count, cores)) as pool:
        ceiling = pool.ceiling(seconds)
    click.echo(f"{ceiling:,.0f} streamed chunks/s over {count} client process{'' if count == 1 else 'es'}.")


bench.add_command(compare)
bench.add_command(quality)
bench.add_command(report)
