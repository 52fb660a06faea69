"""How a card is set up, and what it does at work, from an H200's recorded samples."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.machine.h200_double import H200, SAMPLES
from tests.machine.nvml_double import NVMLError
from tests.machine.short_load import ShortLoad

from firsttoken.machine.card_state import CardProcess, read_cards
from firsttoken.machine.card_under_load import TorchLoad, watch
from firsttoken.machine.gpu_load import keep_busy


def no_sleep(seconds: float) -> None:
    assert 0 < seconds < 1


def test_a_card_tells_how_it_is_set_up(tmp_path: Path) -> None:
    (tmp_path / "proc/77").mkdir(parents=True)
    (tmp_path / "proc/77/comm").write_text("python3\n")
    (tmp_path / "proc/77/cmdline").write_text("/usr/bin/python3\0-P\0-m\0firsttoken.engine.process\0{}\0")
    device = tmp_path / "sys/bus/pci/devices/0000:00:06.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    [card] = read_cards(H200(processes=[(77, 5_000_000_000), (78, None)]), tmp_path)
    assert (card.name, card.uuid, card.bus, card.numa_node) == ("NVIDIA H200", "GPU-0000-0", "0000:00:06.0", 1)
    assert (card.power_limit_w, card.power_default_w, card.power_least_w) == (700.0, 700.0, 200.0)
    assert (card.persistence, card.ecc, card.mig, card.compute_mode) == (True, True, False, "default")
    assert card.processes == (
        CardProcess(77, "python3: firsttoken.engine.process", 5_000_000_000),
        CardProcess(78, None, None),
    )


def test_what_a_card_does_not_tell_is_none_and_the_rest_is_read() -> None:
    silent = {
        "nvmlDeviceGetEccMode",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetPowerManagementLimitConstraints",
        "nvmlDeviceGetGpuMaxPcieLinkGeneration",
        "nvmlDeviceGetMigMode",
    }
    [card] = read_cards(H200(absent=silent))
    assert (card.ecc, card.ecc_pending, card.rows_remapped, card.power_most_w, card.mig) == (None,) * 5
    assert card.power_limit_w == 700.0


def test_under_load_a_card_shows_clocks_heat_link_and_what_holds_it_back() -> None:
    load = ShortLoad(10)
    found = watch(H200("at_power_limit"), 0, load, no_sleep)
    kept = SAMPLES["at_power_limit"][2:]  # while the clocks rise nothing counts
    assert found.samples == len(kept)
    assert found.power_w == max(one["power_w"] for one in kept)
    assert found.sm_clock_mhz is not None
    assert 1590 <= found.sm_clock_mhz <= 1980
    assert (found.memory_clock_mhz, found.link_generation, found.link_width) == (3201.0, 5, 16)
    [(reason, share)] = found.held_back
    assert (reason, share) == (
        "software power cap",
        sum("software power cap" in one["held_back"] for one in kept) / len(kept),
    )
    assert load.stopped == 1


def test_a_card_without_a_link_to_read_has_none() -> None:
    found = watch(H200(absent={"nvmlDeviceGetCurrPcieLinkWidth"}), 0, ShortLoad(), no_sleep)
    assert (found.link_generation, found.link_width) == (None, None)


def test_a_load_that_does_not_start_is_told_and_leaves_nothing_open() -> None:
    nvml, load = H200(), ShortLoad(why_not="no memory")
    with pytest.raises(OSError, match="no memory"):
        watch(nvml, 0, load, no_sleep)
    assert (nvml.open, load.stopped) == (0, 1)


def test_a_load_that_ends_at_once_is_no_reading() -> None:
    with pytest.raises(OSError, match="ended too soon"):
        watch(H200(), 0, ShortLoad(1), no_sleep)


def test_without_a_gpu_the_load_says_so_in_one_line() -> None:
    load = TorchLoad(99)
    with pytest.raises(OSError, match="torch finds no GPU that it can use"):
        load.start()
    load.stop()


def test_the_load_says_when_it_works_and_works_as_long_as_it_was_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert keep_busy(torch.device("cpu"), 16, 1024, 0.02) > 0
    assert capsys.readouterr().out == "working\n"


def test_a_load_that_says_nothing_is_given_up() -> None:
    load = TorchLoad(0, start_within=0.01)
    with pytest.raises(OSError, match="did not start within"):
        load.start()
    load.stop()


def test_a_card_that_cannot_be_opened_is_left_out() -> None:
    class Lost(H200):
        def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
            if index == 0:
                raise NVMLError("GPU is lost")
            return index

    assert [card.index for card in read_cards(Lost(cards=2))] == [1]


def test_a_driver_that_does_not_even_count_its_cards_has_none() -> None:
    assert read_cards(H200(absent={"nvmlDeviceGetCount"})) == []
