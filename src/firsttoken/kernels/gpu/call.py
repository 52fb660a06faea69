"""The one place where kernels are launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from firsttoken.kernels.gpu.card_facts import facts_of

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Call:
    """One launch of a kernel with all that it is given, a tensor first; it is compiled for the types of these alone."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def run(self) -> None:
        """Queues it; with tensors on the meta device only compiles it, into Triton's cache."""
        if self.arguments[0].is_meta:
            self.kernel.warmup(*self.arguments, grid=self.grid, **self.options)
        else:
            self.kernel[self.grid](*self.arguments, **self.options)


def run_kernel(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Runs a call that nobody else wants to look at."""
    Call(kernel, grid, arguments, options).run()


def dependent(x: Tensor) -> bool:
    """Whether kernels on this tensor's device are launched to overlap their predecessors."""
    card = facts_of(x.device)
    return card is not None and card.has_dependent_launch


def overlap(pdl: bool) -> dict[str, Any]:
    """The launch option of programmatic dependent launch: absent where there is none."""
    return {"launch_pdl": True} if pdl else {}
