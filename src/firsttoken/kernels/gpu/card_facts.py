"""What the kernels' forms depend on of a card: read from the one that is there, or said of one to compile for."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class CardFacts:
    """One card, as the driver describes it."""

    name: str
    capability: tuple[int, int]
    processors: int  # streaming multiprocessors
    shared_bytes: int  # of shared memory that one program may have

    @property
    def has_dependent_launch(self) -> bool:
        """Programmatic dependent launch: from compute capability 9.0 up."""
        return self.capability >= (9, 0)

    @property
    def has_fp8(self) -> bool:
        """E4M3 converted in hardware, and multiplied by the matrix units: from compute capability 8.9 up."""
        return self.capability >= (8, 9)


_imagined: list[CardFacts] = []


@contextmanager
def imagined(card: CardFacts) -> Iterator[None]:
    """Inside, tensors on the meta device stand for ones on this card: ops compile for it, and run nothing."""
    _imagined.append(card)
    try:
        yield
    finally:
        _imagined.pop()


def facts_of(device: torch.device) -> CardFacts | None:
    """The card behind a device; None for a CPU, where kernels are interpreted."""
    if device.type == "meta":
        return _imagined[-1] if _imagined else None
    return read_card(device.index) if device.type == "cuda" else None


@functools.cache
def read_card(index: int) -> CardFacts:
    """The facts of the card that torch knows by this number."""
    import torch

    card = torch.cuda.get_device_properties(index)
    return CardFacts(
        name=card.name,
        capability=(card.major, card.minor),
        processors=card.multi_processor_count,
        shared_bytes=card.shared_memory_per_block_optin,  # type: ignore[attr-defined]
    )
