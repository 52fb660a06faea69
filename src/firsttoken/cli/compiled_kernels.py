"""What `firsttoken kernels compile` does: fills Triton's cache for a card that need not be here."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn

from firsttoken.config import EngineConfig
from firsttoken.engine.device import gpu_dtype, gpu_precision, graph_sizes
from firsttoken.engine.early_builds import leave_mark, most_processes
from firsttoken.engine.rehearsal import Settings, kernels_of
from firsttoken.engine.weight_forms import check_rounding
from firsttoken.errors import FirstTokenError
from firsttoken.kernels.gpu import has_triton
from firsttoken.kernels.gpu.card_facts import CardFacts
from firsttoken.kernels.gpu.launch_table import use_table
from firsttoken.machine.cards import Card
from firsttoken.model.config import ModelConfig, load_config
from firsttoken.model.kv_scheme import wants_fp8
from firsttoken.model.memory_plan import batch_limits
from firsttoken.model.vocabulary import token_id_limit

if TYPE_CHECKING:
    from firsttoken.kernels.gpu.kernel_list import Wanted

_KIB = 1024
_SHARED = {(8, 0): 163, (8, 6): 99, (8, 9): 99, (9, 0): 227, (10, 0): 227, (12, 0): 99}
"""KiB of shared memory that a program may have (CUDA C++ Programming Guide, technical specifications)."""


def facts(card: Card) -> CardFacts:
    """The card as its driver will describe it."""
    return CardFacts(card.name, card.capability, card.sms, _SHARED[card.capability] * _KIB)


def settings_of(config: EngineConfig, card: Card) -> tuple[ModelConfig, Settings]:
    """What a server with this configuration would settle on there. Raises ConfigError or ModelError."""
    use_table(config.launch_table, card.name)
    model = load_config(config.path)
    check_rounding(config, model)
    chosen = gpu_dtype(config, model.dtype, has_bfloat16=True)  # as every card of the table has
    dtype, weights, _ = gpu_precision(config, chosen, has_kernels=has_triton())
    seqs, tokens = batch_limits("cuda", card.memory, config.max_num_seqs, config.max_num_batched_tokens)
    return model, Settings(
        dtype=dtype,
        weights=weights,
        fp8_cache=wants_fp8(config.kv_cache_dtype, model.kv_scheme, kernels=has_triton()),
        block_size=config.block_size,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        graphs=graph_sizes(config),
        vocabulary=token_id_limit(config.path),
    )


def compile_kernels(
    console: Console, config: ModelConfig, settings: Settings, card: CardFacts, processes: int | None
) -> None:
    """Compiles all that a start with these settings needs. Raises FirstTokenError where that cannot be."""
    if not has_triton():
        raise FirstTokenError("The GPU kernels need Triton, which is not installed; pip install triton.")
    wanted = kernels_of(config, settings, card)
    if not wanted:
        raise FirstTokenError(
            "With these settings a card runs torch's own kernels (float32, or heads of a size that ours do not have); "
            "there is nothing to compile."
        )
    from triton import knobs

    from firsttoken.kernels.gpu.kernel_list import built_mark

    mark = built_mark(wanted, card)
    where = f"{card.name} (compute capability {'.'.join(map(str, card.capability))})"
    if mark.exists():
        console.print(f"All {len(wanted)} kernels for {where} are in {knobs.cache.dir} already.", soft_wrap=True)
        return
    console.print(f"Compiling {len(wanted)} kernels for {where}.", soft_wrap=True)
    _build(console, wanted, card, processes or most_processes())
    leave_mark(mark)
    console.print(
        f"Compiled into {knobs.cache.dir}: where this folder is at hand, a server with these settings, firsttoken and "
        "Triton of the same versions compiles none when it starts on such a card; where a checkpoint left some modules "
        "unquantised, the kernels of those.",
        soft_wrap=True,
    )


def _build(console: Console, wanted: Collection[Wanted], card: CardFacts, processes: int) -> None:
    from firsttoken.kernels.gpu.kernel_builds import KernelBuilds

    builds = KernelBuilds(wanted, card.capability, processes)
    try:
        with Progress(BarColumn(), TimeElapsedColumn(), console=console, transient=True) as bar:
            task = bar.add_task("", total=1.0)
            builds.wait(lambda begun: bar.update(task, completed=begun))
    finally:
        builds.close()
    if builds.failures:
        raise FirstTokenError(f"{len(builds.failures)} of {len(wanted)} could not be compiled; {builds.failures[0]}")
