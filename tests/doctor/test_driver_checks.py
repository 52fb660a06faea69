"""Which driver holds the card."""

from __future__ import annotations

from dataclasses import replace

from firsttoken.doctor.checks.driver import check_modules
from firsttoken.machine.driver import Driver

WELL = Driver(
    version="580.159.04",
    cuda="13.0",
    trouble=None,
    modules=("nvidia", "nvidia_uvm"),
    module_version="580.159.04",
    on_bus=("0000:00:05.0",),
)


def test_nouveau_is_named_with_the_way_out() -> None:
    found = check_modules(replace(WELL, version=None, modules=("nouveau",)))
    assert (found.verdict, found.reading) == ("bad", "nouveau is loaded")
    assert "blacklist nouveau" in found.fix


def test_a_card_without_any_driver_is_bad_and_no_card_is_no_fault() -> None:
    bare = replace(WELL, version=None, modules=(), module_version=None, trouble="Driver Not Loaded")
    assert check_modules(bare).verdict == "bad"
    assert "1 NVIDIA card on the bus" in check_modules(bare).reading
    assert check_modules(replace(bare, on_bus=())).verdict == "unread"
    assert check_modules(WELL).verdict == "ok"
