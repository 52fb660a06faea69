"""An H200's recorded readings, and faults planted in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from firsttoken.doctor.checks.card import check_card
from firsttoken.doctor.checks.card_at_work import check_at_work
from firsttoken.doctor.finding import Finding
from firsttoken.doctor.readings import CardReadings
from tests.doctor.good_machine import card


def judged(one: CardReadings) -> dict[str, Finding]:
    return {found.check: found for found in (*check_card(one.state), *check_at_work(one))}


@pytest.mark.parametrize("samples", ["busy", "at_rest", "at_power_limit"])
def test_a_card_as_it_was_recorded_has_no_fault(samples: str) -> None:
    found = judged(card(samples))
    assert {one.verdict for one in found.values()} == {"ok"}
    assert {one.area for one in found.values()} == {"card 0: NVIDIA H200"}
    assert not any(one.fix for one in found.values())


def test_a_card_at_its_own_power_limit_says_so_and_is_well() -> None:
    held_back = judged(card("at_power_limit"))["held back"]
    assert "software power cap" in held_back.reading
    assert held_back.verdict == "ok"


@pytest.mark.parametrize(
    ("setup", "check", "verdict", "reading", "fix"),
    [
        ({"persistence": 0}, "persistence", "warn", "off", "nvidia-smi -i 0 -pm 1"),
        ({"limit": 500_000}, "power limit", "warn", "500 W, default 700 W, of 200 to 700 W", "-pl 700"),
        ({"limit": 300_000}, "power limit", "bad", "300 W", "doctor apply"),
        ({"ecc": (0, 0)}, "ECC", "warn", "off", "-e 1"),
        ({"ecc": (0, 1)}, "ECC", "warn", "on after the next restart", "restart"),
        ({"errors": 2}, "memory faults", "bad", "2 uncorrected errors", "restart"),
        ({"remapped": (0, 1, 1, 0)}, "memory faults", "bad", "1 row remapped, a remapping waits", "restart"),
        ({"remapped": (0, 8, 0, 1)}, "memory faults", "bad", "could not be remapped", "replaced"),
        ({"processes": [(4711, 30 * 1024**3)]}, "other processes", "warn", "process 4711", "stop it"),
        ({"used": 100 * 1024**3}, "memory", "warn", "cannot be seen from here", "on the host"),
        ({"mig": (1, 1)}, "sharing", "warn", "MIG is on", "MIG off"),
        ({"mode": 2}, "sharing", "bad", "prohibited", "-c DEFAULT"),
        ({"sm_clock": 1200}, "SM clock", "warn", "1200 MHz under load, 61% of 1980 MHz", "-rgc"),
        ({"sm_clock": 345}, "SM clock", "bad", "345 MHz", "-rgc"),
        ({"memory_clock": 810}, "memory clock", "bad", "810 MHz under load, 25% of 3201 MHz", "-rmc"),
        ({"reason": "hardware thermal slowdown"}, "held back", "bad", "hardware thermal slowdown in 100%", "fans"),
        ({"reason": "power brake"}, "held back", "bad", "power brake", "power cables"),
        ({"reason": "hardware slowdown"}, "held back", "bad", "hardware slowdown", "cooling"),
        ({"temperature": 90}, "temperature", "bad", "90 °C under load, slows down at 89 °C", "fans"),
        ({"link": (5, 8)}, "PCIe link", "warn", "8 lanes under load; generation 5, 16 lanes", "slot"),
        ({"link": (5, 4)}, "PCIe link", "bad", "4 lanes", "slot"),
        ({"link": (1, 16)}, "PCIe link", "bad", "generation 1", "slot"),
    ],
)
def test_a_planted_fault_is_named_alone_with_its_reading_and_fix(
    setup: dict[str, Any], check: str, verdict: str, reading: str, fix: str
) -> None:
    found = judged(card(**setup))
    assert (found[check].verdict, reading in found[check].reading) == (verdict, True), found[check].reading
    assert fix in found[check].fix
    assert {name for name, one in found.items() if one.verdict != "ok"} == {check}


def test_a_throttled_card_shows_in_clock_and_reason() -> None:
    found = judged(card(reason="hardware thermal slowdown", sm_clock=900))
    assert [found[name].verdict for name in ("SM clock", "held back")] == ["bad", "bad"]
    assert "See `held back`" in found["SM clock"].fix, "a throttled clock is no locked one"


def test_a_power_cap_below_the_default_is_to_look_at() -> None:
    found = judged(card(reason="software power cap", limit=450_000))
    assert found["held back"].verdict == "warn"
    assert "power limit" in found["held back"].fix


def test_a_slot_slower_than_the_card_is_no_fault_and_is_told() -> None:
    found = judged(card(link=(4, 16), link_max=(4, 16)))["PCIe link"]
    assert found.verdict == "ok"
    assert "generation 5, this slot does not" in found.reading


def test_a_server_that_holds_most_of_the_memory_is_told_by_name() -> None:
    found = judged(card(used=130 * 1024**3, processes=[(9, 129 * 1024**3)]))
    assert found["memory"].verdict == "warn"
    assert "129.0 GiB" in found["other processes"].reading


def test_gddr_without_ecc_is_as_it_should_be() -> None:
    one = card(ecc=(0, 0))
    gddr = replace(one, state=replace(one.state, memory_clock_max_mhz=10501))
    assert judged(gddr)["ECC"].verdict == "ok"


def test_what_a_card_does_not_tell_is_not_readable_and_no_fault() -> None:
    silent = replace(
        card().state,
        persistence=None, power_limit_w=None, ecc=None, uncorrected_errors=None, remap_failed=None,
        processes=None, memory_used=None, mig=None, compute_mode=None,
    )  # fmt: skip
    assert {one.verdict for one in check_card(silent)} == {"unread"}


def test_a_card_that_was_not_put_to_work_says_why() -> None:
    idle = CardReadings(state=card().state, under_load=None, why_no_load="not put to work beside others")
    found = check_at_work(idle)
    assert {one.verdict for one in found} == {"unread"}
    assert {one.reading for one in found} == {"not put to work beside others"}
