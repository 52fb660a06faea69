"""All readings that the checks judge, as one value: it goes into `--json` whole, and a test can replay it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firsttoken.machine.card_state import CardState
from firsttoken.machine.card_under_load import UnderLoad
from firsttoken.machine.disk import Disk
from firsttoken.machine.driver import Driver
from firsttoken.machine.memory import Memory
from firsttoken.machine.processor import Processor
from firsttoken.machine.software import Software
from firsttoken.machine.system import System


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReadings:
    """A card at rest, and at work where it was put to work."""

    state: CardState
    under_load: UnderLoad | None
    why_no_load: str | None  # why it was not put to work, in a sentence's words


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """One machine at one moment."""

    taken: str  # ISO date and time
    driver: Driver
    cards: tuple[CardReadings, ...]
    software: Software
    processor: Processor
    memory: Memory
    disk: Disk
    system: System
    environment: Mapping[str, str]  # the variables that the checks know, no others
