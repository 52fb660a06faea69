"""`firsttoken tune`: which settings help on this machine and this work, kept only where a measurement says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firsttoken.cli.bench_options import EXISTING, FOLDER, POSITIVE
from firsttoken.cli.grouped_options import GroupedCommand, apply_options
from firsttoken.cli.grouped_options import grouped_option as _option
from firsttoken.cli.kernels import Seconds
from firsttoken.cli.lazy_group import LazyGroup
from firsttoken.cli.option_types import FloatRange, IntRange

if TYPE_CHECKING:
    from firsttoken.bench.recipe import Recipe
    from firsttoken.tune.arms import Value
    from firsttoken.tune.journal import Plan
    from firsttoken.tune.objective import Objective
    from firsttoken.tune.space import Space

COMMANDS = {
    "kernels": ("firsttoken.cli.kernels", "measure", "Find the fastest launches of the GPU kernels on this card."),
    "report": ("firsttoken.cli.tune_report", "report", "Make the page of a finished session again."),
}


class _Group(GroupedCommand, LazyGroup):
    """Options under their titles, then the commands."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


_SERVER, _WORK, _GOAL, _SESSION = "Server", "Work", "Goal", "Session"
_COUNT = IntRange(1)

_OPTIONS = [
    _option(_SERVER, "--model", metavar="MODEL", help="What is served, as for the engine's own command."),
    _option(
        _SERVER,
        "--engine",
        type=click.Choice(["firsttoken", "vllm"]),
        default="firsttoken",
        show_default=True,
        help="Whose server and knobs.",
    ),
    _option(
        _SERVER,
        "--command",
        metavar="TEMPLATE",
        help="Another way to launch it, with {model}, {port} and {flags} in it.",
    ),
    _option(_SERVER, "--space", type=EXISTING, help="A file of knobs instead of the engine's own."),
    _option(
        _SERVER, "--flags", default="", metavar="FLAGS", help="Flags that every server gets and that stay as they are."
    ),
    _option(
        _SERVER,
        "--set",
        "baseline",
        multiple=True,
        metavar="KNOB=VALUE",
        help="The baseline's settings; the engine's own where left out.",
    ),
    _option(
        _SERVER,
        "--knob",
        "knobs",
        multiple=True,
        metavar="KNOB[=V,V]",
        help="Try only these, with these values or the file's.  [default: all]",
    ),
    _option(_SERVER, "--model-config", type=EXISTING, help="The model's config.json or folder, for predictions."),
    _option(
        _SERVER,
        "--ready-timeout",
        type=POSITIVE,
        default=1800.0,
        show_default=True,
        help="Seconds from launch to ready.",
    ),
    _option(
        _SERVER,
        "--request-timeout",
        type=POSITIVE,
        default=120.0,
        show_default=True,
        help="Seconds without a byte after which a request has failed.",
    ),
    _option(
        _WORK,
        "--workload",
        metavar="SCENARIO|FILE",
        help="A scenario of `bench scenarios`, a file of scenarios, or one of prompts (JSONL).  [default: support]",
    ),
    _option(_WORK, "--input-len", type=_COUNT, metavar="TOKENS", help="Generated prompts of this length."),
    _option(_WORK, "--output-len", type=_COUNT, metavar="TOKENS", help="Answers of this length."),
    _option(_WORK, "--shared-prefix-len", type=_COUNT, metavar="TOKENS", help="How much of every prompt is the same."),
    _option(_WORK, "--concurrency", type=_COUNT, help="Requests in flight."),
    _option(_WORK, "--rate", type=POSITIVE, help="Instead: requests a second."),
    _option(_WORK, "--requests", type=_COUNT, help="Measured requests (or dialogues) a run."),
    _option(_WORK, "--warm-up", type=IntRange(0), help="Requests before them."),
    _option(
        _GOAL,
        "--objective",
        type=click.Choice(["tpot", "ttft_p99", "throughput", "goodput"]),
        help="What is made better.  [default: goodput with --slo, else throughput]",
    ),
    _option(_GOAL, "--slo", metavar="LIMITS", help="ttft=500ms,tpot=50ms: limits that a request must keep."),
    _option(
        _GOAL,
        "--slo-share",
        type=FloatRange(0, 1),
        default=0.9,
        show_default=True,
        help="Share of requests that must keep them, or what the baseline reaches if that is less.",
    ),
    _option(_SESSION, "--budget", type=Seconds(), default="30m", show_default=True, help="Time for all runs, about."),
    _option(_SESSION, "--seed", type=int, help="Of orders and prompts; drawn anew when left out."),
    _option(
        _SESSION,
        "--out",
        type=FOLDER,
        default="tune",
        show_default=True,
        help="A folder for the journal, the runs and the results.",
    ),
    _option(_SESSION, "--resume", is_flag=True, help="Go on with the session in --out, however it ended."),
]


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    return apply_options(_OPTIONS, function)


@click.group(cls=_Group, lazy=COMMANDS, invoke_without_command=True)
@_options
@click.pass_context
def tune(ctx: click.Context, /, out: Path, resume: bool, **options: Any) -> None:
    """Find out which settings help on this machine and this work, and keep only those.

    Measures your settings as a baseline, then each knob's other values, on servers that it launches and stops one after
    the other. A knob is kept where fresh launches in random order show that it helps, by 2 % or by the machine's noise,
    whichever is more; where it changes answers, only if their quality holds. Writes a config for `serve --config`, the
    launch command and a page. Stop what else runs here first.
    """
    if ctx.invoked_subcommand is not None:
        return
    from firsttoken.cli.bench import signals_as_ctrl_c
    from firsttoken.cli.bench_results import terminal
    from firsttoken.tune.live import LiveView, unit_of
    from firsttoken.tune.objective import FIGURES
    from firsttoken.tune.outputs import write_outputs
    from firsttoken.tune.quality import QualityGate
    from firsttoken.tune.space import load_space
    from firsttoken.tune.table import print_tuned
    from firsttoken.tune.trial import Bench, Trials
    from firsttoken.tune.tuning import Request, run_tuning

    if options["model"] is None:
        raise click.UsageError("Name what is served: --model MODEL.")
    console = terminal()
    space = load_space(options["engine"], options["space"], options["command"])
    recipes = _recipes(options)
    plan = _plan(space, recipes, out, options | {"resume": resume})
    request = Request(
        plan=plan,
        space=space,
        always=options["flags"],
        titles=[(one.title or one.name, one.title_zh or one.title or one.name) for one in recipes],
        folder=out,
        resume=resume,
    )
    try:
        with (
            signals_as_ctrl_c(),
            LiveView(console, plan.budget, unit_of(FIGURES[plan.objective].is_time)) as view,
        ):
            bench = Bench(
                space=space,
                model=plan.model,
                always=options["flags"],
                scenarios=_planner(recipes),
                objective=plan.objective,
                slo=plan.slo,
                folder=out,
                ready_timeout=options["ready_timeout"],
                request_timeout=options["request_timeout"],
                shared=max(one.prompt.shared_tokens for one in recipes),
                model_config=options["model_config"],
                tell=view.bench,
            )
            tuned = run_tuning(
                request,
                Trials(bench),
                lambda context: QualityGate(space, plan.model, options["flags"], out, context=context),
                view,
            )
    except KeyboardInterrupt:
        console.print(f"Stopped; what was measured is kept in {out}. Add --resume to go on.", markup=False)
        raise
    console.print()
    print_tuned(console, tuned)
    written = ", ".join(map(str, write_outputs(out, tuned)))
    console.print(f"Written: {written}", style="dim", markup=False, soft_wrap=True)


def _recipes(options: dict[str, Any]) -> list[Recipe]:
    """The work, as `bench run` would take it. Raises ConfigError."""
    from firsttoken.bench.recipe import load_file
    from firsttoken.bench.scenarios import choose
    from firsttoken.bench.wanted import Wanted, changed, own_recipe

    workload = options["workload"]
    path = Path(workload) if workload is not None else None
    is_file = path is not None and path.suffix in (".toml", ".json", ".jsonl")
    wanted = Wanted(
        concurrencies=(options["concurrency"],) if options["concurrency"] else (),
        rates=(options["rate"],) if options["rate"] else (),
        requests=options["requests"],
        warm_up=options["warm_up"],
        input_tokens=options["input_len"],
        output_tokens=options["output_len"],
        shared_tokens=options["shared_prefix_len"],
        dataset=path if is_file and path is not None and path.suffix == ".jsonl" else None,
    )
    if wanted.dataset is not None or (workload is None and wanted.prompts):
        return [own_recipe(wanted)]
    found = load_file(path) if is_file and path is not None else None
    return [changed(recipe, wanted) for recipe in choose([] if found else [workload or "support"], found)]


def _planner(recipes: list[Recipe]) -> Callable[[Any], Any]:
    """Fits the scenarios to a server's context."""
    from firsttoken.bench.scenarios import plan

    return lambda server: plan(recipes, server.max_model_len)[0]


def _plan(space: Space, recipes: list[Recipe], out: Path, options: dict[str, Any]) -> Plan:
    """What the session is; a resumed one has the seed of the folder's."""
    import random

    import msgspec

    from firsttoken.bench.metrics import parse_slo
    from firsttoken.errors import ConfigError
    from firsttoken.tune.journal import Plan, seed_of
    from firsttoken.tune.space import parse_setting
    from firsttoken.version import __version__

    slo = parse_slo(options["slo"]) if options["slo"] else {}
    objective: Objective = options["objective"] or ("goodput" if slo else "throughput")
    if objective == "goodput" and not slo:
        raise ConfigError("Goodput counts the requests within limits: give them with --slo ttft=500ms,tpot=50ms.")
    seed = options["seed"]
    if seed is None:
        seed = seed_of(out / "journal.jsonl") if options["resume"] else random.SystemRandom().getrandbits(53)
    return Plan(
        version=__version__,
        engine=space.name,
        command=f"{space.command} {options['flags']}".strip(),
        model=options["model"],
        workload={"scenarios": msgspec.to_builtins(recipes)},
        objective=objective,
        slo=slo,
        slo_share=options["slo_share"],
        baseline=dict(parse_setting(space, text) for text in options["baseline"]),
        knobs=_knobs(space, options["knobs"]),
        budget=options["budget"],
        seed=seed,
    )


def _knobs(space: Space, asked: tuple[str, ...]) -> dict[str, list[Value]]:
    """Knobs to try, with values of the user's own where given. Raises ConfigError."""
    from firsttoken.tune.space import parse_values

    if not asked:
        return {knob.name: [] for knob in space.knob}
    found: dict[str, list[Value]] = {}
    for text in asked:
        name, _, values = text.partition("=")
        knob = space.find(name)
        found[knob.name] = parse_values(knob, values)
    return found
