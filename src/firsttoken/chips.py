"""Which card's measured kernel launches another takes: the kernels go by it, and whoever tells of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def launched_as(card: str, measured: Mapping[str, Sequence[str]]) -> str | None:
    """Whose launches a card takes: its own, or those of a card with the same chip; None for the defaults.

    Names are the driver's; `measured` says of each measured card how the names of others with its chip begin.
    """
    if card in measured:
        return card
    return next((name for name, like in measured.items() if card.startswith(tuple(like))), None)
