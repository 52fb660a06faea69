"""What is asked of a side: the model it runs, and how much of everything is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHUNK = 256  # tokens a step of the prefill way: below what a library's attention would take past the KV cache
DECODED_FROM = 64  # position from which the decode way goes one token a step
SHORT_LENGTHS = (512, 2048, 4096)  # tokens of needles on a CPU
LONG_LENGTHS = (2048, 8192, 32768)  # and on a GPU


@dataclass(frozen=True, slots=True)
class Settings:
    """How a side is launched."""

    shown: str
    model: str
    options: Mapping[str, Any]  # of `LLM`


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much is measured; the same for both sides."""

    tokens: int = 512  # of each text that comes in chunks
    decoded: int = 32  # of each text that come one a step
    answer_tokens: int = 64
    lengths: tuple[int, ...] = ()  # of needles; (): by the device


@dataclass(frozen=True, slots=True)
class Work:
    """One side's part."""

    settings: Settings
    amount: Amount
    reference: Path  # the file of A's distributions
    is_reference: bool = False  # A writes it, and is measured against itself in company
    texts: list[list[int]] = field(default_factory=list)  # the reference's token ids, for B
    lengths: tuple[int, ...] = ()  # of its needles
