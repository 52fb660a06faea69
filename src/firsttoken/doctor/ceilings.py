"""What this machine can do at best, each figure beside what its data sheet promises."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from firsttoken.bench import units
from firsttoken.machine.cards import Card
from firsttoken.machine.ceilings import MemoryCeiling
from firsttoken.machine.disk import Disk
from firsttoken.machine.gpu_ceilings import Ceilings


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One rate. `sheet` is the data sheet's, where it has one and the card is known."""

    name: str
    measured: float | None  # None: not measured, for the reason in `text`
    unit: str  # "B/s", "FLOP/s", "s", "tokens/s"
    text: str  # what it bounds, or why it is missing
    sheet: float | None = None

    @property
    def share(self) -> float | None:
        """Of the data sheet's."""
        return None if self.measured is None or self.sheet is None else self.measured / self.sheet


def card_ceilings(found: Ceilings, card: Card | None) -> list[Ceiling]:
    """A card's, as the probe measured them."""
    fp8 = "prompts and large batches with FP8 activations" if found.fp8_product else "this card or its torch has none"
    read, product, fp8_product, link = (
        (None,) * 4 if card is None else (card.read, card.product, card.fp8_product, card.host_to_device)
    )
    return [
        Ceiling("GPU memory, read", found.read, "B/s", "decoding: weights and KV cache", read),
        Ceiling("GPU memory, copy", found.copy, "B/s", "read and written together", read),
        Ceiling("bf16 product", found.product, "FLOP/s", "prompts and large batches", product),
        Ceiling("fp8 product", found.fp8_product, "FLOP/s", fp8, fp8_product),
        Ceiling("kernel launch", found.launch, "s", "steps without CUDA graphs"),
        Ceiling("host to GPU", found.host_to_device, "B/s", "loading weights", link),
    ]


def host_memory(found: MemoryCeiling) -> Ceiling:
    """The host's memory with every core at once."""
    return Ceiling("host memory, read", found.bytes_per_second, "B/s", f"decoding on this CPU, {found.threads} threads")


def disk_rate(found: Disk) -> Ceiling:
    """Of the disk that holds a model, past the page cache."""
    text = "a first start; a later one reads from the page cache" if found.rate else found.why_unmeasured or ""
    return Ceiling("disk of the model", found.rate, "B/s", text)


def tokenizer_rate(encode: Callable[[str], Sequence[int]], text: str, seconds: float = 0.5) -> Ceiling:
    """Tokens a second of one thread: the best of the rounds that fit into `seconds`, after one that is not timed."""
    tokens = len(encode(text))
    best, end = float("inf"), time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        encode(text)
        best = min(best, time.perf_counter() - start)
    return Ceiling("tokeniser", tokens / best, "tokens/s", f"a prompt's way to the engine, of {tokens:,} tokens")


def print_ceilings(console: Console, ceilings: Sequence[Ceiling], notes: Sequence[str]) -> None:
    """A table, and below it when and how it was measured."""
    shown = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
    shown.add_column("ceiling")
    for title in ("measured", "data sheet", "share"):
        shown.add_column(title, justify="right")
    shown.add_column("bounds")
    for one in ceilings:
        sheet = "" if one.sheet is None else _value(one.sheet, one.unit)
        share = "" if one.share is None else units.percent(one.share)
        shown.add_row(one.name, _value(one.measured, one.unit), sheet, share, one.text)
    console.print(shown)
    for note in notes:
        console.print(note, highlight=False)


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return units.NOTHING
    if unit == "s":
        return f"{units.digits(value * 1e6)} µs"
    if unit == "tokens/s":
        return f"{units.digits(value)} tokens/s"
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{units.digits(value / size)} {prefix}{unit}"
    return f"{units.digits(value)} {unit}"
