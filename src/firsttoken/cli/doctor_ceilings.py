"""`firsttoken doctor ceilings`: what this machine can do at best."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from firsttoken.doctor.ceilings import Ceiling


@click.command()
@click.argument("model", required=False)
@click.option("--refresh", is_flag=True, help="Measure the card again and keep the better of each rate.")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def ceilings(model: str | None, refresh: bool, as_json: bool) -> int:
    """Measure what this machine can do at best, beside what its data sheet promises; a few seconds.

    The card's figures are kept for a month, by card and driver; measure while nothing else runs on it. With MODEL, as
    `serve` takes it, also how fast its disk reads and its tokeniser encodes; no weights are fetched.
    """
    found, notes = _card(refresh)
    found += _host()
    if model is not None:
        found += _model(model)
    else:
        notes.append("With a MODEL also the disk that holds it and its tokeniser.")
    if as_json:
        rows = [asdict(one) | {"share": one.share} for one in found]
        click.echo(json.dumps({"ceilings": rows, "notes": notes}, indent=2))
    else:
        from firsttoken.cli.bench_results import terminal
        from firsttoken.doctor.ceilings import print_ceilings

        print_ceilings(terminal(), found, notes)
    return 0


def _card(refresh: bool) -> tuple[list[Ceiling], list[str]]:
    from firsttoken.doctor.ceilings import card_ceilings
    from firsttoken.errors import ConfigError
    from firsttoken.machine.cards import known_card
    from firsttoken.machine.gpu import read_gpus
    from firsttoken.machine.gpu_ceilings import gpu_ceilings, known_ceilings

    gpus = read_gpus()
    if not gpus:
        return [], ["There is no NVIDIA GPU here, so only the host was measured."]
    gpu, card = gpus[0], known_card(gpus[0].name, gpus[0].memory_total)
    try:
        known = known_ceilings(gpu)
        found = gpu_ceilings(gpu, refresh=refresh or (known is not None and not known.complete))
    except ConfigError as error:
        return [], [str(error)]
    clocks = ""
    if found.sm_clock_mhz and found.memory_clock_mhz:
        clocks = f"; under the bf16 product its cores ran at {found.sm_clock_mhz:,.0f} MHz, its memory at "
        clocks += f"{found.memory_clock_mhz:,.0f} MHz"
    notes = [f"{gpu.name}, driver {gpu.driver}, measured on {found.measured_on}{clocks}."]
    if card is None:
        notes.append(f"No data sheet of {gpu.name} is known here.")
    else:
        notes.append(f"Data sheet: {card.source}.")
    return card_ceilings(found, card), notes


def _host() -> list[Ceiling]:
    from firsttoken.doctor.ceilings import host_memory
    from firsttoken.machine.ceilings import memory_ceiling

    return [host_memory(memory_ceiling())]


def _model(model: str) -> list[Ceiling]:
    from firsttoken.bench.common_words import COMMON_WORDS
    from firsttoken.doctor.ceilings import disk_rate, tokenizer_rate
    from firsttoken.machine.disk import read_disk
    from firsttoken.model.hub import resolve
    from firsttoken.tokenizer import Tokenizer

    path = resolve(model, weights=False)
    text = " ".join(COMMON_WORDS[number * 7919 % len(COMMON_WORDS)] for number in range(8000))
    return [disk_rate(read_disk(path)), tokenizer_rate(Tokenizer.load(path).encode, text)]
