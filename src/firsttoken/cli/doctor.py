"""`firsttoken doctor`: is this machine going to be fast, and if not, why and what to do."""

from __future__ import annotations

import click

from firsttoken.cli.lazy_group import LazyGroup

COMMANDS: dict[str, tuple[str, str, str]] = {
    "live": ("firsttoken.cli.doctor_live", "live", "What bounds a running server, and the change most likely to help."),
    "ceilings": (
        "firsttoken.cli.doctor_ceilings",
        "ceilings",
        "What this machine can do at best, by measurement.",
    ),
}


@click.group(cls=LazyGroup, lazy=COMMANDS, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--explain", is_flag=True, help="Say why each check matters, also where it is well.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, explain: bool) -> int | None:
    """Say whether a model will run fast here, and if not, why.

    Reads this host and its NVIDIA cards and judges each reading; without a card it judges the host. Exits with 0 when
    all is well, 3 when something should be looked at, 4 when something is bad.
    """
    if ctx.invoked_subcommand is not None:
        return None
    from firsttoken.cli.bench_results import terminal
    from firsttoken.doctor.checks.driver import check_modules
    from firsttoken.doctor.finding import exit_code
    from firsttoken.doctor.report import print_findings
    from firsttoken.machine.driver import open_nvml, read_driver

    nvml, trouble = None, None
    try:
        nvml = open_nvml()
    except OSError as error:
        trouble = str(error)
    findings = [check_modules(read_driver(nvml, trouble))]
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps([asdict(one) for one in findings], indent=2))
    else:
        print_findings(terminal(), findings, explain=explain)
    return exit_code(findings)
