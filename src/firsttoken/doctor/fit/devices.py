"""Devices to ask about: a card by its data sheet, the card at hand, an unknown card's memory, or this CPU."""

from __future__ import annotations

from firsttoken.doctor.fit.ask import Device
from firsttoken.doctor.fit.speed import Rates
from firsttoken.machine.cards import Card, known_card
from firsttoken.machine.ceilings import MemoryCeiling
from firsttoken.machine.gpu import Gpu
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.machine.host import Host
from firsttoken.model.memory_plan import DeviceMemory


def sheet_device(card: Card, utilization: float, memory: int | None = None) -> Device:
    """A card that is not here, with nothing else on it; `memory` where only a part of it may be used."""
    total = memory or card.memory
    return Device(
        name=f"{card.name} ({total / 2**30:.1f} GiB)",
        memory=DeviceMemory(kind="cuda", total=total, free=total, utilization=utilization),
        rates=_sheet_rates(card),
        capability=card.capability,
    )


def memory_device(memory: int, utilization: float) -> Device:
    """A card of which only the memory is known."""
    return Device(
        name=f"a GPU of {memory / 2**30:.1f} GiB",
        memory=DeviceMemory(kind="cuda", total=memory, free=memory, utilization=utilization),
        rates=Rates(kind="cuda", origin="the card is not named; add --gpu"),
    )


def local_device(gpu: Gpu, ceilings: Ceilings | None, utilization: float) -> Device:
    """The card at hand as it is now; its measured ceilings go before its data sheet."""
    card = known_card(gpu.name, gpu.memory_total)
    if ceilings is not None:
        when = f"measured here on {ceilings.measured_on}"
        rates = Rates(
            kind="cuda",
            read=ceilings.read,
            product=ceilings.product,
            sms=None if card is None else card.sms,
            origin=_rates_text(ceilings, when),
        )
    elif card is not None:
        rates = _sheet_rates(card)
    else:
        rates = Rates(kind="cuda", origin="nobody has measured this card; run `firsttoken doctor ceilings`")
    total, free = gpu.memory_total, gpu.memory_free
    return Device(
        name=f"{gpu.name} ({total / 2**30:.1f} GiB, {free / 2**30:.1f} of them free)",
        memory=DeviceMemory(kind="cuda", total=total, free=free, utilization=utilization),
        rates=rates,
        capability=None if card is None else card.capability,
    )


def cpu_device(host: Host, ceiling: MemoryCeiling) -> Device:
    """This machine without a GPU. Arithmetic has no rate here, for the forms of products differ too much in width."""
    free = host.memory_available
    origin = f"memory reads {ceiling.bytes_per_second / 1e9:.3g} GB/s with {ceiling.threads} threads, measured here"
    return Device(
        name=f"this CPU ({host.cores} cores, {free / 2**30:.1f} GiB of memory free)",
        memory=DeviceMemory(kind="cpu", total=host.memory_total, free=free),
        rates=Rates(kind="cpu", read=ceiling.bytes_per_second, origin=f"{origin}; arithmetic is not predicted"),
    )


def _sheet_rates(card: Card) -> Rates:
    text = f"{card.read / 1e9:,.0f} GB/s and {card.product / 1e12:,.4g} TFLOP/s by the data sheet ({card.source})"
    shares = "expected are the shares that an H200 reached"
    return Rates(
        kind="cuda",
        read=card.read,
        product=card.product,
        sms=card.sms,
        from_sheet=True,
        origin=f"{text}; {shares}",
    )


def _rates_text(ceilings: Ceilings, when: str) -> str:
    read, product = ceilings.read or 0.0, ceilings.product or 0.0
    return f"{read / 1e9:,.0f} GB/s and {product / 1e12:,.4g} TFLOP/s, {when}"
