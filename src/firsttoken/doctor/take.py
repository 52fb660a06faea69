"""Takes all readings of this machine; only this file of the part reads anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from firsttoken.doctor.checks.environment import known_variables
from firsttoken.doctor.readings import CardReadings, Readings
from firsttoken.machine.card_state import CardState, read_cards
from firsttoken.machine.card_under_load import Load, OthersLoad, watch
from firsttoken.machine.disk import read_disk
from firsttoken.machine.driver import read_driver
from firsttoken.machine.memory import read_memory
from firsttoken.machine.processor import read_processor
from firsttoken.machine.software import Software
from firsttoken.machine.system import read_system

PORTS = (8000, 8080)  # of `serve` and of its chat page
_AT_WORK = 90.0  # per cent of busy time from which on another program's work shows what a card does under load


def take_readings(
    nvml: Any | None,
    trouble: str | None,
    software: Software,
    models: Path,
    environ: Mapping[str, str],
    *,
    load_of: Callable[[int], Load] | None,
    even_if_used: bool = False,
    ports: Sequence[int] = PORTS,
    root: Path = Path("/"),
    tell: Callable[[str], object] = lambda doing: None,
) -> Readings:
    """`nvml` is the started module pynvml or a stand-in, None where it could not be started (`trouble` says why).

    `load_of` makes the load for a card, None puts no card to work. A card that others use is put to work only with
    `even_if_used`; else it is read while they work, if they do. `tell` is told what takes time.
    """
    processor, memory = read_processor(root), read_memory(root)  # before anything here makes the machine busy
    cards = [] if nvml is None else read_cards(nvml, root)
    taken = []
    for card in cards:
        tell(f"card {card.index}" + ("" if load_of is None else " under a short load"))
        taken.append(_at_work(nvml, card, load_of, even_if_used))
    tell("the disk that models are read from")
    return Readings(
        taken=datetime.now().astimezone().isoformat(timespec="seconds"),
        driver=read_driver(nvml, trouble, root),
        cards=tuple(taken),
        software=software,
        processor=processor,
        memory=memory,
        disk=read_disk(models, mounts=root / "proc/self/mounts"),
        system=read_system(ports, root),
        environment=known_variables(environ),
    )


def _at_work(nvml: Any, card: CardState, load_of: Callable[[int], Load] | None, even_if_used: bool) -> CardReadings:
    if load_of is None:
        return CardReadings(state=card, under_load=None, why_no_load="not put to work, as --no-load says")
    if card.processes and not even_if_used:
        return _beside_others(nvml, card)
    try:
        return CardReadings(state=card, under_load=watch(nvml, card.index, load_of(card.index)), why_no_load=None)
    except OSError as error:
        return CardReadings(state=card, under_load=None, why_no_load=f"could not be put to work: {error}")


def _beside_others(nvml: Any, card: CardState) -> CardReadings:
    seen = watch(nvml, card.index, OthersLoad())
    if seen.busy_percent is None or seen.busy_percent < _AT_WORK:
        why_not = "not put to work beside others, which leave it idle now (--load does it)"
        return CardReadings(state=card, under_load=None, why_no_load=why_not)
    return CardReadings(state=card, under_load=replace(seen, by_others=True), why_no_load=None)
