"""What `firsttoken kernels measure` does: opens the card, searches with a progress bar, prints and writes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from firsttoken.engine.gpu_needs import why_no_launchers
from firsttoken.errors import FirstTokenError
from firsttoken.kernels.gpu import has_triton
from firsttoken.kernels.gpu.launch import Product, Table
from firsttoken.kernels.gpu.launch_table import find_table, merged, own_table, own_table_file, write_table
from firsttoken.kernels.gpu.search import Card, Found, search
from firsttoken.kernels.quant_forms import QuantForm
from firsttoken.machine.gpu_probe import measure as probe
from firsttoken.machine.host import read_host
from firsttoken.model.config import ModelConfig
from firsttoken.model.products import products_of
from firsttoken.version import __version__

_GIB = 1024**3
_PROBE_SECONDS = 0.1
_PROCESS_BYTES = 2 * _GIB  # of host memory that a compiling process may take


@dataclass(frozen=True, slots=True)
class OpenCard:
    """A card ready to be measured."""

    card: Card
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

    from firsttoken.kernels.gpu.card import GpuCard, limits_of
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
        card = GpuCard(device, dtype, pool, limits, ceilings.cache_bytes)
        yield OpenCard(card, ceilings.name, ceilings.read, count, versions)


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
            budget,
            width=opened.processes,
            tell=tell,
        )
    console.print(grid(found, opened.read, config.num_layers))
    own = own_table(opened.name, folder)
    products = merged(own.products if own is not None else (), [each.best for each in found])
    measured = f"{date.today()}, {opened.versions}, each product alone in a CUDA graph over cold weights"
    write_table(Table(card=opened.name, measured=measured, products=products), file)
    console.print(advice(found, file, ours=out is None), markup=False, soft_wrap=True)


def grid(found: Sequence[Found], read: float, layers: int) -> Grid:
    """A line a product and row count, and one for all products of a step of so many rows."""
    table = Grid(caption=f"Share: of the {read / 1e12:.2f} TB/s that this card reads, measured just now")
    for title in ("product", "rows", "launch"):
        table.add_column(title, no_wrap=title != "launch")
    for title in ("µs", "TB/s", "share", "before, µs", "tried"):
        table.add_column(title, justify="right", no_wrap=True)
    for rows in sorted({each.job.rows for each in found}):
        here = [each for each in found if each.job.rows == rows]
        for each in here:
            rate = each.job.weight_bytes / each.us * 1e6
            change = "the same" if each.best == each.before else f"{each.before_us:.1f}"
            if each.before_us == float("inf"):
                change = "failed"  # it did not run here, or gave wrong numbers
            figures = (f"{each.us:.1f}", f"{rate / 1e12:.2f}", f"{rate / read:.0%}", change)
            table.add_row(each.job.name, str(rows), words(each.best), *figures, f"{each.tried} of {each.possible}")
        times = [(layers if each.job.name != "head" else 1, each) for each in here]
        us = sum(count * each.us for count, each in times)
        rate = sum(count * each.job.weight_bytes for count, each in times) / us * 1e6
        all_of = (f"all of a step, {layers} layers", str(rows), "", f"{us:,.0f}", f"{rate / 1e12:.2f}")
        table.add_row(*all_of, f"{rate / read:.0%}", "", "", end_section=True)
    return table


def words(product: Product) -> str:
    """A launch in a few words."""
    p = product
    if p.form == "library":
        return "library"
    tile = f"{p.form} {p.bn}x{p.bk}, {p.warps} warps"
    if p.form == "matvec":
        return f"{tile}, {p.ahead} ahead"
    if p.form == "fixed":
        return tile
    splits = f", {p.splits} parts" if p.splits > 1 else ""
    return f"{tile}, {p.stages} stages{splits}{f', prefetch {p.prefetch}' if p.prefetch else ''}"


def advice(found: Sequence[Found], file: Path, *, ours: bool) -> str:
    """What was written, who reads it, and what else can be done with it."""
    changed = sum(each.best != each.before for each in found)
    lines = [f"Written: {file} ({changed} of {len(found)} launches changed)"]
    if ours:
        lines.append("`firsttoken serve` takes these from its next start on; delete the file to go back.")
    else:
        lines.append("`firsttoken serve` does not look there; without --out the file goes where it does.")
    lines.append(
        "To give them to everyone with this card, copy the file to src/firsttoken/kernels/gpu/tables/ in a clone, run "
        "the tests in tests/kernels on the card, and open a pull request."
    )
    return "\n".join(lines)
