"""A first start's kernels, compiled beside each other while the weights are read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from firsttoken.engine.device import Placement
from firsttoken.engine.rehearsal import Settings, kernels_of
from firsttoken.kernels.gpu.card_facts import CardFacts, read_card
from firsttoken.machine.host import read_host
from firsttoken.model.config import ModelConfig
from firsttoken.model.memory_plan import MemoryPlan

if TYPE_CHECKING:
    from firsttoken.kernels.gpu.kernel_builds import KernelBuilds
    from firsttoken.kernels.gpu.kernel_list import Wanted

_PROCESS_BYTES = 1 << 30  # of host memory that a compiling process may take
_log = logging.getLogger(__name__)


class EarlyBuilds:
    """Builds under way, and the mark that spares later starts the work."""

    def __init__(self, builds: KernelBuilds, mark: Path) -> None:
        self._builds, self._mark = builds, mark

    def finish(self, tell: Callable[[float], None]) -> None:
        """Waits for all; `tell` gets the share that has begun. What failed is compiled when it is first used."""
        self._builds.wait(tell)
        if failures := self._builds.failures:
            _log.warning("%d of the kernels are compiled only when first used: %s", len(failures), failures[0])
            return
        leave_mark(self._mark)

    def close(self) -> None:
        self._builds.close()


def early_builds(config: ModelConfig, placement: Placement, plan: MemoryPlan, vocabulary: int) -> EarlyBuilds | None:
    """Begins to compile what this start needs on its GPU; None where that was done before, or is nothing."""
    if placement.device.type != "cuda":
        return None
    card = read_card(placement.device.index)
    settings = Settings(
        dtype=placement.dtype,
        weights=placement.weights,
        fp8_cache=placement.fp8_cache,
        block_size=plan.block_size,
        max_num_seqs=placement.max_num_seqs,
        max_num_batched_tokens=placement.max_num_batched_tokens,
        graphs=placement.graphs,
        vocabulary=vocabulary,
    )
    try:
        wanted = kernels_of(config, settings, card)
        return _begin(wanted, card) if wanted else None
    except Exception:  # a start that compiles one kernel after another is slow, and still a start
        _log.exception("the kernels of this model could not be compiled before they are needed")
        return None


def _begin(wanted: Collection[Wanted], card: CardFacts) -> EarlyBuilds | None:
    from firsttoken.kernels.gpu.kernel_builds import KernelBuilds  # needs Triton, as `wanted` did
    from firsttoken.kernels.gpu.kernel_list import built_mark

    mark = built_mark(wanted, card)
    return None if mark.exists() else EarlyBuilds(KernelBuilds(wanted, card.capability, most_processes()), mark)


def leave_mark(mark: Path) -> None:
    """Says to later starts that all is built; a cache that cannot be written to has been complained of by Triton."""
    with suppress(OSError):
        mark.touch()


def most_processes() -> int:
    """How many may compile at once on this machine."""
    host = read_host()
    return max(1, min(host.cores, host.memory_available // _PROCESS_BYTES))
