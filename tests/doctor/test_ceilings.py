from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from firsttoken.doctor.ceilings import card_ceilings, disk_rate, host_memory, print_ceilings, tokenizer_rate
from firsttoken.machine.cards import find_card
from firsttoken.machine.ceilings import MemoryCeiling
from firsttoken.machine.disk import Disk
from firsttoken.machine.gpu_ceilings import Ceilings

H200 = Ceilings(
    "NVIDIA H200",
    read=4.38e12,
    copy=4.29e12,
    product=7.99e14,
    measured_on="2026-12-01",
    driver="580.159.04",
    launch=3.1e-6,
    host_to_device=5.1e10,
)


def test_each_ceiling_stands_beside_the_data_sheets() -> None:
    found = {one.name: one for one in card_ceilings(H200, find_card("H200"))}
    assert found["GPU memory, read"].share == pytest.approx(4.38 / 4.8)
    assert found["bf16 product"].share == pytest.approx(799 / 989)
    assert found["host to GPU"].share == pytest.approx(51 / 63, rel=0.01)
    assert found["kernel launch"].share is None
    assert (found["fp8 product"].measured, found["fp8 product"].share) == (None, None)
    assert "none" in found["fp8 product"].text


def test_a_card_that_nobody_knows_has_no_data_sheet() -> None:
    assert all(one.sheet is None for one in card_ceilings(H200, None))


def test_the_table_has_units_that_people_read() -> None:
    out = io.StringIO()
    ceilings = [*card_ceilings(H200, find_card("H200")), host_memory(MemoryCeiling(2.03e10, 2, "2026-12-01"))]
    print_ceilings(Console(file=out, width=160), ceilings, ["Measured on 2026-12-01."])
    text = out.getvalue()
    for part in ("4.38 TB/s", "4.80 TB/s", "91 %", "799 TFLOP/s", "3.10 µs", "20.3 GB/s", "Measured on 2026-12-01."):
        assert part in text


def test_a_disk_has_its_rate_or_the_reason_why_not() -> None:
    read = Disk("/models", "ext4", 1, 2.5e9, "/models/m.safetensors", None)
    assert disk_rate(read).measured == 2.5e9
    unread = disk_rate(replace(read, rate=None, why_unmeasured="there is no weight file to read"))
    assert (unread.measured, unread.text) == (None, "there is no weight file to read")


def test_a_tokenisers_rate_is_that_of_its_best_round() -> None:
    calls: list[str] = []

    def encode(text: str) -> list[int]:
        calls.append(text)
        return [0] * 1000

    found = tokenizer_rate(encode, "a text", seconds=0.0)
    assert len(calls) == 2  # one to warm up
    assert found.measured is not None
    assert found.measured > 1000
    assert "1,000 tokens" in found.text
