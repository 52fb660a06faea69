from __future__ import annotations

import pytest

from firsttoken.errors import ConfigError
from firsttoken.machine.cards import cards, find_card, known_card


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("RTX4090D", "NVIDIA GeForce RTX 4090 D"),
        ("3060 12 GB", "NVIDIA GeForce RTX 3060"),
        ("4070Ti Super", "NVIDIA GeForce RTX 4070 Ti SUPER"),
        ("h100 sxm", "NVIDIA H100 80GB HBM3"),
        ("a100 40gb", "NVIDIA A100-SXM4-40GB"),
        ("A10 24GB", "NVIDIA A10"),  # although the driver counts less, for ECC takes its share
        ("b200", "NVIDIA B200"),
    ],
)
def test_a_card_is_found_by_what_people_call_it(text: str, name: str) -> None:
    assert find_card(text).name == name


def test_every_card_is_found_by_its_own_names() -> None:
    for card in cards():
        assert find_card(card.name) is find_card(card.short_name) is known_card(card.name, card.memory) is card


def test_a_card_of_another_size_under_the_same_name_is_not_taken_for_it() -> None:
    assert known_card("NVIDIA GeForce RTX 3060", 8 << 30) is None
    found = known_card("NVIDIA GeForce RTX 4060 Ti", 16_380 << 20)
    assert found is find_card("4060 ti 16GB")
    assert known_card("NVIDIA GeForce RTX 4060 Ti", 8188 << 20) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a100", r"A100-SXM4-40GB, A100 80GB PCIe or A100-SXM4-80GB; name one"),
        ("h100", r"H100 PCIe, H100 NVL or H100 80GB HBM3; name one"),
        ("3060 Ti", r"did you mean .*RTX 3060"),
        ("3060 8GB", r"did you mean .*RTX 3060"),
        ("voodoo", r"known are RTX 3060, .*B200.*--memory"),
        ("", "known are"),
    ],
)
def test_a_card_that_is_not_one_of_them_is_asked_about(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        find_card(text)


def test_the_table_is_plausible() -> None:
    names = [card.name for card in cards()]
    assert len(names) == len(set(names))
    for card in cards():
        assert 8 <= card.memory / 2**30 <= 192
        assert 0.25e12 < card.read < 9e12
        assert 30 < card.product / card.read < 500  # FLOP a byte: a slip of a digit would stand out
        assert (card.fp8_product is None) == (card.capability < (8, 9))
        assert card.fp8_product is None or 1.95 < card.fp8_product / card.product < 2.05
        assert 14e9 < card.host_to_device < 64e9
        assert card.source
