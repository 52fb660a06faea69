"""A card that is not here, as Triton's compiler asks for it: kernels are compiled for it, and no GPU is touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver


class AbsentDriver:
    """A driver of one card of this compute capability, in place of CUDA's."""

    def __init__(self, capability: tuple[int, int]) -> None:
        major, minor = capability
        self._target = GPUTarget("cuda", 10 * major + minor, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> str:
        """A name that no device has: what is compiled for this card stays apart in Triton's memory."""
        return f"absent {self._target.arch}"

    def get_current_stream(self, device: str) -> int:
        return 0


@contextmanager
def absent(capability: tuple[int, int]) -> Iterator[None]:
    """Inside, Triton compiles for a card of this capability."""
    driver.set_active(AbsentDriver(capability))
    try:
        yield
    finally:
        with suppress(RuntimeError):  # a machine without a GPU has no other driver
            driver.reset_active()
