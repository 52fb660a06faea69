"""Ceilings that nobody has measured, as a card's data sheet promises them."""

from __future__ import annotations

from firsttoken.machine.cards import known_card
from firsttoken.machine.gpu_ceilings import Ceilings


def by_data_sheet(name: str) -> Ceilings | None:
    """Of the card that the driver calls `name`; None where the table lacks it. No card reads quite as fast."""
    sheet = known_card(name)
    if sheet is None:
        return None
    name = f"{sheet.name} by its data sheet"
    return Ceilings(name, read=sheet.read, product=sheet.product, fp8_product=sheet.fp8_product)
