"""The ceilings of the card that a trace was recorded on."""

from __future__ import annotations

from collections.abc import Callable

from firsttoken.bench.roofline_judge import GivenRates
from firsttoken.doctor.data_sheet import by_data_sheet
from firsttoken.machine.cards import BY_RATES, find_card
from firsttoken.machine.gpu import Gpu, read_gpus
from firsttoken.machine.gpu_ceilings import Ceilings, known_ceilings


def trace_ceilings(
    device_name: str,
    card_name: str | None,
    given: GivenRates,
    list_gpus: Callable[[], list[Gpu]] = read_gpus,
    known: Callable[[Gpu], Ceilings | None] = known_ceilings,
) -> Ceilings | None:
    """Those given; else as measured where such a card is here; else by the data sheet. Raises ConfigError."""
    name = device_name if card_name is None else find_card(card_name, BY_RATES).name
    here = next((gpu for gpu in list_gpus() if gpu.name == name), None) if name else None
    found = (known(here) if here is not None else None) or by_data_sheet(name)
    if found is None and given.read is None:
        return None
    return (found or Ceilings("the given rates")).with_given(read=given.read, product=given.product)
