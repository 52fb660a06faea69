"""`firsttoken doctor`: is this machine going to be fast, and if not, why and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from firsttoken.cli.lazy_group import LazyGroup

if TYPE_CHECKING:
    from firsttoken.doctor.readings import Readings

COMMANDS: dict[str, tuple[str, str, str]] = {
    "apply": ("firsttoken.cli.doctor_tuning", "apply", "Change host settings, after showing them and asking."),
    "restore": ("firsttoken.cli.doctor_tuning", "restore", "Put back what `doctor apply` changed."),
    "live": ("firsttoken.cli.doctor_live", "live", "What bounds a running server, and the change most likely to help."),
    "ceilings": (
        "firsttoken.cli.doctor_ceilings",
        "ceilings",
        "What this machine can do at best, by measurement.",
    ),
    "trace": (
        "firsttoken.cli.doctor_trace",
        "trace",
        "Where a recorded trace spends its steps: gaps, kernels, ceilings.",
    ),
}


@click.group(cls=LazyGroup, lazy=COMMANDS, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print findings and readings as JSON.")
@click.option("--explain", is_flag=True, help="Say why each check matters, also where it is well.")
@click.option(
    "--load/--no-load",
    default=None,
    help="Put each card to work for two seconds and read it meanwhile.  [default: where nobody else uses it]",
)
@click.option(
    "--models",
    type=click.Path(exists=True, path_type=Path),
    help="Where models are read from: a folder or a file.  [default: the hub's cache]",
)
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, explain: bool, load: bool | None, models: Path | None) -> int | None:
    """Say whether a model will run fast here, and if not, why.

    Reads this host and its NVIDIA cards and judges each reading; without a card it judges the host. Changes nothing.
    Exits with 0 when all is well, 3 when something should be looked at, 4 when something is bad.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options(ctx, ctx.invoked_subcommand)
        return None
    from firsttoken.cli.bench_results import terminal
    from firsttoken.doctor.examine import examine
    from firsttoken.doctor.finding import exit_code
    from firsttoken.doctor.report import as_document, print_findings

    console = terminal()
    readings = _read(load, models)
    findings = examine(readings)
    if as_json:
        click.echo(as_document(findings, readings))
    else:
        print_findings(console, findings, explain=explain)
    return exit_code(findings)


def _refuse_options(ctx: click.Context, command: str) -> None:
    """Options of the checks before a command would do nothing."""
    for option in ctx.command.params:
        if option.name and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option.opts[0]} belongs to the checks; write it after {command}, if that has it.")


def _read(load: bool | None, models: Path | None) -> Readings:
    import os

    from rich.console import Console

    from firsttoken.doctor.take import take_readings
    from firsttoken.engine.gpu_needs import why_no_launchers
    from firsttoken.kernels.cpu_build import find_compiler
    from firsttoken.machine.card_under_load import TorchLoad
    from firsttoken.machine.disk import model_folder
    from firsttoken.machine.driver import open_nvml
    from firsttoken.machine.software import read_software

    nvml, trouble = None, None
    try:
        nvml = open_nvml()
    except OSError as error:
        trouble = str(error)
    with Console(stderr=True).status("Reading this machine") as status:
        try:
            return take_readings(
                nvml,
                trouble,
                read_software(why_no_launchers, find_compiler),
                models or model_folder(),
                os.environ,
                load_of=None if load is False else TorchLoad,
                even_if_used=load is True,
                tell=lambda doing: status.update(f"Reading {doing}"),
            )
        finally:
            if nvml is not None:
                nvml.nvmlShutdown()
