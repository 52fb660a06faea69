"""A comparison as tables in a terminal."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from firsttoken.bench import units
from firsttoken.bench.table import plain_table
from firsttoken.quality.records import Agreement, Distance, Quality, Side


def print_quality(console: Console, found: Quality) -> None:
    """Distances with their floor beside them, then what each side is and costs."""
    console.print(Text(f"A  {found.a.settings}\nB  {found.b.settings}", style="bold"), soft_wrap=True)
    console.print()
    _distances(console, found)
    console.print()
    _sides(console, found)
    console.print()
    for line in _notes(found):
        console.print(Text(line, style="dim"), soft_wrap=True)


def _distances(console: Console, found: Quality) -> None:
    columns = ["positions", "KL of B", "99 % below", "same best", "floor: KL", "same best"]
    table = plain_table("B against A", *columns)
    for floor, far in zip(found.floor, found.distance, strict=True):
        name = f"{far.way}, {far.kind}"
        cells = [f"{far.positions:,}", _nats(far.kl), _nats(far.kl_p99), _share(far), _nats(floor.kl), _share(floor)]
        table.add_row(Text(name, style="bold" if far.kind == "all" else ""), *cells)
    console.print(table)


def _sides(console: Console, found: Quality) -> None:
    table = plain_table("", "A", "B")
    both = found.a, found.b
    for i, mine in enumerate(found.a.perplexity):
        table.add_row(f"perplexity, {mine.kind}", *(f"{side.perplexity[i].value:.3f}" for side in both))
    table.add_row("greedy answers as A's alone", _agreement(found.floor_agreement), _agreement(found.agreement))
    for i, _ in enumerate(found.a.needles):
        cells = (f"{side.needles[i].found} of {side.needles[i].asked}" for side in both)
        table.add_row(f"needles found in {found.a.needles[i].tokens:,} tokens", *cells)
    rows: dict[str, Callable[[Side], str]] = {
        "TPOT, one answer": lambda side: units.seconds(side.tpot),
        "output tok/s, all answers": lambda side: units.rate(side.output_tokens_per_s),
        "TTFT, longest needle": lambda side: units.seconds(side.ttft),
        "start": lambda side: units.seconds(side.start_seconds),
        "weights read a token": lambda side: units.size(side.weight_bytes),
        "KV cache a token": lambda side: units.size(side.kv_bytes_per_token),
        "KV cache holds, tokens": lambda side: f"{side.kv_tokens:,}",
        "peak memory": lambda side: units.size(side.peak_bytes),
    }
    for name, cell in rows.items():
        table.add_row(name, *(cell(side) for side in both))
    console.print(table)


def _notes(found: Quality) -> list[str]:
    sides = [
        f"{name}: {side.model} on {side.device}, {side.dtype}, {side.weights}"
        for name, side in (("A", found.a), ("B", found.b))
    ]
    return [
        *sides,
        "KL is KL(A || B) in nats a token over the whole vocabulary, at known text. The floor is A against itself "
        "where texts and answers share their steps: what is below it is not B's.",
        "Times are of this run alone; `firsttoken bench ab` measures them in pairs.",
    ]


def _nats(value: float) -> str:
    return "0" if value == 0 else f"{value:.5f}" if value >= 1e-5 else f"{value:.0e}"


def _share(one: Distance) -> str:
    return f"{one.same_best:.1%}"


def _agreement(one: Agreement) -> str:
    return f"{one.same} of {one.answers}, first {one.shared:.0%}"
