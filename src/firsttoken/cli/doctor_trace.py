"""`firsttoken doctor trace`: where the steps of a recorded trace spend their time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from firsttoken.cli.bench_options import POSITIVE
from firsttoken.cli.option_types import FloatRange, IntRange


@click.command(short_help="Where a recorded trace spends its steps: gaps, kernels, ceilings.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--step", metavar="NAME", help="How the names of the spans begin that hold a step each.")
@click.option("--model-config", type=click.Path(path_type=Path), help="The model's config.json, folder or .gguf file.")
@click.option("--tokens", type=POSITIVE, default=1.0, show_default=True, help="New tokens of a step.")
@click.option(
    "--context",
    type=FloatRange(0),
    default=0.0,
    show_default=True,
    help="Tokens in the contexts of a step's sequences, together.",
)
@click.option("--kv-element-bytes", type=POSITIVE, default=2.0, show_default=True, help="Of the KV cache; 1 for fp8.")
@click.option(
    "--gpu", metavar="NAME", help="The card, whose data sheet gives the ceilings; the trace's own when left out."
)
@click.option("--memory-gb-s", type=POSITIVE, help="The memory's ceiling in GB/s.")
@click.option("--product-tflop-s", type=POSITIVE, help="A product's ceiling in TFLOP/s.")
@click.option("--top", type=IntRange(1), default=12, show_default=True, help="How many ops are shown.")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
def trace(
    file: Path,
    step: str | None,
    model_config: Path | None,
    tokens: float,
    context: float,
    kv_element_bytes: float,
    gpu: str | None,
    top: int,
    as_json: bool,
    **rates: Any,
) -> None:
    """Say how much of a step is gaps, which kernels take the rest, and how near to the ceiling they are.

    FILE is a torch profiler's trace (.json or .json.gz; `serve --profile-steps` writes such, vLLM and SGLang too), or
    an sqlite export of Nsight Systems (`nsys export --type sqlite`). Steps are the spans that firsttoken, torch's
    schedule or vLLM mark, or those named by --step.
    """
    from firsttoken.bench.model_costs import read_model_costs
    from firsttoken.cli.bench_options import given_rates
    from firsttoken.cli.bench_results import terminal
    from firsttoken.doctor.trace.known import trace_ceilings
    from firsttoken.doctor.trace.open import open_trace
    from firsttoken.doctor.trace.verdict import StepWork, judge_trace
    from firsttoken.doctor.trace.view import print_finding
    from firsttoken.traces.trace import STEP_MARKS

    opened = open_trace(file, STEP_MARKS if step is None else (step,))
    work = None
    if model_config is not None:
        work = StepWork(costs=read_model_costs(model_config, kv_element_bytes), tokens=tokens, context=context)
    ceilings = trace_ceilings(opened.device_name, gpu, given_rates(rates))
    finding = judge_trace(opened, work, ceilings)
    if as_json:
        click.echo(json.dumps({"file": str(file), **finding.as_json()}, indent=2))
    else:
        print_finding(terminal(), file.name, finding, top)
