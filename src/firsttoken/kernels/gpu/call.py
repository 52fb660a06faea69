"""The one place where kernels are launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
