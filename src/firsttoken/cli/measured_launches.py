"""What `firsttoken kernels measure` does: opens the card, searches with a progress bar, prints and writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from firsttoken.cli.launch_words import advice, grid
from firsttoken.engine.gpu_needs import why_no_launchers
from firsttoken.errors import FirstTokenError
from firsttoken.kernels.gpu import has_triton
from firsttoken.kernels.gpu.launch import Table
from firsttoken.kernels.gpu.launch_table import find_table, merged, own_table, own_table_file, write_table
from firsttoken.kernels.gpu.search import Card, Found, search
from firsttoken.kernels.gpu.step_search import Settled, Steps, settle
from firsttoken.kernels.quant_forms import QuantForm
from firsttoken.machine.gpu_probe import measure as probe
from firsttoken.machine.host import read_host
from firsttoken.model.config import ModelConfig
from firsttoken.model.products import products_of
from firsttoken.version import __version__

_GIB = 1024**3
_PROBE_SECONDS = 0.1
_STEPS_SHARE = 0.3  # of the budget, for whole steps
_PROCESS_BYTES = 2 * _GIB  # of host memory that a compiling process may take


@dataclass(frozen=True, slots=True)
class OpenCard:
    """A card ready to be measured."""

    card: Card
    steps: Callable[[ModelConfig, QuantForm | None, Table, int], Steps]
    """Makes a model's whole steps of up to so many rows. Raises torch.OutOfMemoryError; the card is done with then."""
    name: str  # as the driver says
    read: float  # bytes a second that it reads at best, as just measured
    processes: int  # that compile at once
    versions: str  # of what the kernels are compiled with


@contextmanager
def open_card(processes: int | None) -> Iterator[OpenCard]:
    """The current GPU and processes to compile for it. Raises FirstTokenError, in a sentence, where there is none."""
    if not torch.cuda.is_available():
        raise FirstTokenError(
            "There is no GPU here that torch can use, so there are no launches to measure; run this on the machine "
            "that serves (`firsttoken version` names the GPUs that its driver sees)."
        )
    if not has_triton():
        raise FirstTokenError("The GPU kernels need Triton, which is not installed; pip install triton.")
    if (reason := why_no_launchers()) is not None:
        raise FirstTokenError(reason)
    import triton

    from firsttoken.engine.whole_steps import WholeSteps
    from firsttoken.kernels.gpu.card import GpuCard, graph_timer, limits_of
    from firsttoken.kernels.gpu.card_facts import read_card
    from firsttoken.kernels.gpu.compile_pool import Build, CompilePool

    device = torch.device("cuda", torch.cuda.current_device())
    free, _ = torch.cuda.mem_get_info(device)
    ceilings = probe(device, min(2 * _GIB, free // 4), 1024, _PROBE_SECONDS)
    torch.cuda.empty_cache()
    limits = limits_of(device)
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    host = read_host()
    count = processes or max(1, min(host.cores, host.memory_available // _PROCESS_BYTES))
    versions = f"torch {torch.__version__}, Triton {triton.__version__}, firsttoken {__version__}"
    with CompilePool(Build(dtype, read_card(device.index)), count) as pool:
        timer = graph_timer()  # one for both, whose graphs share their memory
        card = GpuCard(device, dtype, pool, limits, ceilings.cache_bytes, timer)

        def steps(config: ModelConfig, form: QuantForm | None, table: Table, rows: int) -> Steps:
            card.forget()
            return WholeSteps(config, form, table, most_rows=rows, device=device, dtype=dtype, timer=timer)

        yield OpenCard(card, steps, ceilings.name, ceilings.read, count, versions)


def measure_launches(
    console: Console,
    config: ModelConfig,
    rows: Sequence[int],
    opened: OpenCard,
    *,
    budget: float,
    out: Path | None,
    form: QuantForm | None = None,
    folder: Path | None = None,
) -> None:
    """Searches, prints what was found, and writes it over what was measured here before.

    `form` is what weights are rounded to at load. `folder` is where this machine's tables are kept, by default in the
    cache folder.
    """
    jobs = products_of(config, rows, form)
    file = out or own_table_file(opened.name, folder)  # a user without a home learns it before the work
    in_use = find_table(opened.name, folder)
    console.print(
        f"Measuring {len(jobs)} products on {opened.name} for about {budget:.0f} s; {opened.processes} processes "
        "compile.",
        soft_wrap=True,
    )
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task, begin = bar.add_task("starting", total=budget), time.monotonic()

        def tell(text: str) -> None:
            bar.update(task, description=text, completed=time.monotonic() - begin)

        found = search(
            jobs,
            lambda job: replace(in_use.pick(job.op, job.n, job.k, job.rows, job.weight), rows=job.rows),
            opened.card,
            budget * (1 - _STEPS_SHARE),
            width=opened.processes,
            tell=tell,
        )
        tell("a model with made-up weights, for whole steps")
        settled, why = _settled(found, lambda: opened.steps(config, form, in_use, max(rows)), begin + budget, tell)
    if alone := [str(count) for count in rows if count not in {step.rows for step in settled}]:
        console.print(f"{why}, so launches are judged alone: at {', '.join(alone)} rows.", soft_wrap=True)
    in_steps = {each.job: each for step in settled for each in step.found}
    found = [in_steps.get(each.job, each) for each in found]
    console.print(grid(found, settled, opened.read, config.num_layers))
    own = own_table(opened.name, folder)
    products = merged(own.products if own is not None else (), [each.best for each in found])
    how = "each product alone in a CUDA graph over cold weights"
    how += ", then the best by whole decode steps" if settled else ""
    measured = f"{date.today()}, {opened.versions}, {how}"
    write_table(Table(card=opened.name, measured=measured, products=products), file)
    console.print(advice(found, file, ours=out is None), markup=False, soft_wrap=True)


def _settled(
    found: Sequence[Found], steps: Callable[[], Steps], until: float, tell: Callable[[str], None]
) -> tuple[list[Settled], str]:
    """What whole steps decided, and why they may have left out row counts: there launches are judged alone."""
    settled: list[Settled] = []
    try:
        made = steps()
        for step in settle(found, made, until - time.monotonic(), tell):
            settled.append(step)
    except torch.OutOfMemoryError:
        return settled, "The whole model with its contexts does not fit in the card's free memory"
    except KeyboardInterrupt:  # what was found before is kept
        return settled, "Stopped"
    return settled, "Whole steps cannot run here"
