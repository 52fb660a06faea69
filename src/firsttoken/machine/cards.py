"""The cards of the field: what their data sheets promise. The table is `cards.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from firsttoken.errors import ConfigError

_LANE = {"3.0": 0.985e9, "4.0": 1.969e9, "5.0": 3.938e9}  # bytes a second each way, after PCIe's 128b/130b coding
BY_MEMORY = "For another card give its memory with --memory."
BY_RATES = "For another card give its rates with --memory-gb-s and --product-tflop-s."
_MAKER = ("nvidia", "geforce", "generation", "edition", "workstation")  # words that tell no card from another


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card by its data sheet: dense rates, with sums in float32."""

    name: str  # the driver's
    memory: int  # bytes in all, as the driver counts them
    read: float  # bytes a second
    product: float  # FLOP/s in bfloat16
    fp8_product: float | None  # FLOP/s; None where the card has none
    capability: tuple[int, int]
    sms: int  # streaming multiprocessors
    pcie: str  # "5.0 x16"
    also: tuple[str, ...]  # other words for it
    source: str

    @property
    def host_to_device(self) -> float:
        """Bytes a second that the link carries one way."""
        generation, lanes = self.pcie.split(" x")
        return _LANE[generation] * int(lanes)

    @property
    def short_name(self) -> str:
        """As a user would write it."""
        return self.name.removeprefix("NVIDIA ").removeprefix("GeForce ")


@cache
def cards() -> tuple[Card, ...]:
    """Every card of the table, in its order."""
    table = tomllib.loads(files("firsttoken.machine").joinpath("cards.toml").read_text("utf-8"))
    return tuple(_card(entry) for entry in table["card"])


def known_card(name: str, memory: int | None = None) -> Card | None:
    """The card that the driver calls `name`, of `memory` bytes where they are known; None where the table lacks it."""
    near = (card for card in cards() if card.name == name and (memory is None or _near(card, memory / 2**30)))
    return next(near, None)


def find_card(text: str, otherwise: str = BY_MEMORY) -> Card:
    """The card that a user means: "4090", "rtx 3060", "h100 pcie", a driver's name. Raises ConfigError.

    Every word given must be one of the card's, and a size near its own; of several such cards the one with the fewest
    words besides is meant, and a tie is asked about. `otherwise` ends the error of a card that is not in the table.
    """
    asked, size = _words(text)
    fits = [
        (len(_names(card) - set(card.also)), card)
        for card in cards()
        if asked and asked <= _names(card) and (size is None or _near(card, size))
    ]
    fewest = min((count for count, _ in fits), default=0)
    nearest = [card for count, card in fits if count == fewest]
    if len(nearest) == 1:
        return nearest[0]
    if nearest:
        raise ConfigError(f"--gpu {text!r} can be {_or(card.short_name for card in nearest)}; name one of them.")
    names = {card.short_name.lower(): card.short_name for card in cards()}
    close = [card.short_name for card in cards() if asked & {word for word in _names(card) if word[-1].isdigit()}]
    close = close or [names[name] for name in get_close_matches(text.lower(), names, n=3, cutoff=0.6)]
    hint = f"did you mean {_or(close)}?" if close else f"known are {', '.join(names.values())}."
    raise ConfigError(f"No card {text!r} is in the table; {hint} {otherwise}")


def _card(entry: dict[str, Any]) -> Card:
    major, minor = entry["capability"].split(".")
    fp8 = entry.get("fp8_tflops")
    return Card(
        name=entry["name"],
        memory=entry["memory_mib"] << 20,
        read=entry["read_gb_s"] * 1e9,
        product=entry["bf16_tflops"] * 1e12,
        fp8_product=None if fp8 is None else fp8 * 1e12,
        capability=(int(major), int(minor)),
        sms=entry["sms"],
        pcie=entry["pcie"],
        also=tuple(entry.get("also", ())),
        source=entry["source"],
    )


def _near(card: Card, gib: float) -> bool:
    """Whether the card's memory is what its box or the driver calls `gib`: ECC and the driver take their shares."""
    return 0.9 * gib <= card.memory / 2**30 <= 1.05 * gib


def _names(card: Card) -> set[str]:
    return _words(card.name)[0] | set(card.also)


def _words(text: str) -> tuple[set[str], int | None]:
    """The words that tell a card, and its gigabytes: "RTX4090 24 GB" is "rtx 4090 24gb", "4070Ti" is "4070 ti"."""
    text = text.lower()
    size = re.search(r"\b(\d+)\s*gb\b", text)
    text = re.sub(r"\b\d+\s*gb\b", " ", text)
    text = re.sub(r"\brtx(?=\d)", "rtx ", re.sub(r"(?<=\d{4})(?=(ti|super|d)\b)", " ", text))
    words = {word for word in re.split(r"[^a-z0-9]+", text) if word and word not in _MAKER}
    return words, None if size is None else int(size[1])


def _or(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
