"""`firsttoken bench`: measure any OpenAI-compatible server, with every figure's ceiling beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firsttoken.cli.bench_options import (
    EXISTING,
    POSITIVE,
    command_line,
    figure_options,
    given_rates,
    result_options,
    server_options,
    wanted_of,
    work_options,
)
from firsttoken.cli.bench_results import finish, report, terminal
from firsttoken.cli.options import GroupedCommand

if TYPE_CHECKING:
    from firsttoken.bench.recipe import Recipe
    from firsttoken.bench.records import ServerIdentity
    from firsttoken.bench.run import BenchSpec
    from firsttoken.bench.scenario import Scenario


@click.group()
def bench() -> None:
    """Measure any OpenAI-compatible server, with every figure's ceiling beside it.

    Works with firsttoken, vLLM, SGLang, llama.cpp and their like. `bench run` measures what serves on port 8000.
    """


@bench.command(cls=GroupedCommand)
@server_options
@work_options
@figure_options
@result_options
def run(out: Path | None, with_csv: bool, **options: Any) -> int:
    """Measure a server and write a report.

    With nothing but a URL: the server's first model and a short set of scenarios. A load or lengths without --scenario
    make a scenario of their own. The results are a JSON file, the raw requests as JSONL and one HTML page, side by
    side. Exits with 1 when a self-check says that the figures must not be used.
    """
    from time import localtime, strftime

    from firsttoken.bench.live import LiveView
    from firsttoken.bench.result_file import load_result
    from firsttoken.bench.roofline_judge import MachineCeilings, RooflineJudge
    from firsttoken.bench.run import run_scenarios
    from firsttoken.bench.sources import monitor_for

    console = terminal()
    path = out or Path("bench") / f"{strftime('%Y%m%d-%H%M%S', localtime())}.json"
    recipes = chosen(options)
    ceilings = MachineCeilings(options["url"], given_rates(options), options["gpus"])
    if options["launch"]:
        ceilings.prepare()  # before the server takes the card's memory
    judge = RooflineJudge(
        ceilings.of,
        options["model_config"],
        kv_element_bytes=options["kv_element_bytes"],
        tokens_per_step=options["tokens_per_step"],
    )
    try:
        with LiveView(console) as view:

            def plan_for(server: ServerIdentity) -> list[Scenario]:
                from firsttoken.bench.events import Note
                from firsttoken.bench.scenarios import plan

                scenarios, notes = plan(recipes, server.max_model_len)
                for note in notes:
                    view(Note(note))
                return scenarios

            spec = spec_of(options, path, plan_for)
            result = run_scenarios(spec, view, monitor=monitor_for(spec.url), judges=[judge])
    except KeyboardInterrupt:
        kept = load_result(path) if path.exists() else None
        if kept is not None and any(scenario.records for scenario in kept.scenarios):
            finish(console, kept, path, with_csv)
            again = f"Stopped; what was measured is kept. The same command with --out {path} goes on from there."
            console.print(again, markup=False, soft_wrap=True)
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


def spec_of(options: dict[str, Any], out: Path, scenarios: Any) -> BenchSpec:
    """What the run needs, from the flags."""
    from firsttoken.bench.metrics import parse_slo
    from firsttoken.bench.run import BenchSpec

    return BenchSpec(
        url=options["url"],
        scenarios=scenarios,
        model=options["model"],
        out=out,
        api_key=options["api_key"],
        launch=options["launch"],
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
@click.option("--processes", type=click.IntRange(1), help="Client processes; half of the cores when left out.")
@click.option("--seconds", type=POSITIVE, default=2.0, show_default=True, help="How long to test.")
def selftest(processes: int | None, seconds: float) -> None:
    """Measure this client's own ceiling: streamed chunks a second."""
    import os

    from firsttoken.bench.workers import ClientPool, client_cores

    count = processes or max((os.cpu_count() or 1) // 2, 1)
    with ClientPool(count, client_cores(count)) as pool:
        ceiling = pool.ceiling(seconds)
    click.echo(f"{ceiling:,.0f} streamed chunks/s over {count} client process{'' if count == 1 else 'es'}.")


bench.add_command(report)
