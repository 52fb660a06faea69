"""All checks over one machine's readings, in the order in which they are told."""

from __future__ import annotations

from firsttoken.doctor.checks.card import check_card
from firsttoken.doctor.checks.card_at_work import check_at_work
from firsttoken.doctor.checks.disk import check_disk
from firsttoken.doctor.checks.driver import check_driver
from firsttoken.doctor.checks.environment import check_environment
from firsttoken.doctor.checks.memory import check_memory
from firsttoken.doctor.checks.processor import check_processor
from firsttoken.doctor.checks.software import check_software
from firsttoken.doctor.checks.system import check_system
from firsttoken.doctor.finding import Finding
from firsttoken.doctor.readings import Readings


def examine(readings: Readings) -> list[Finding]:
    """Judges; reads nothing."""
    cards = tuple(card.state for card in readings.cards)
    found = check_driver(readings.driver, readings.software, readings.system)
    if not cards:
        found.append(no_card(readings))
    for card in readings.cards:
        found += [*check_card(card.state), *check_at_work(card)]
    found += check_software(readings.software, cards)
    found += check_processor(readings.processor, bool(cards))
    found += check_memory(readings.memory, cards, readings.processor.allowed)
    found += check_disk(readings.disk)
    found += check_system(readings.system)
    return [*found, *check_environment(readings.environment, readings.processor.cores, bool(cards))]


def no_card(readings: Readings) -> Finding:
    """Said plainly: everything runs, but at the pace of the host's memory."""
    why = "A model then runs on the CPU, and each token takes as long as reading all weights from the host's memory."
    fix = "For Qwen3-4B take a machine with an NVIDIA card; on this one a small model answers well: `firsttoken demo`."
    if readings.driver.on_bus:
        fix = "There is a card on the bus: see `driver` above."
    return Finding("card", "NVIDIA card", "warn", "none that can be used, so the CPU runs the model", why, fix)
