"""A card's ceilings: measured by a probe, remembered a month, or given. A fake runner stands in for the probe."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest
import torch

from firsttoken.errors import ConfigError
from firsttoken.machine.ceilings import MemoryCeiling
from firsttoken.machine.gpu import Gpu
from firsttoken.machine.gpu_ceilings import Ceilings, gpu_ceilings, host_ceilings, known_ceilings
from firsttoken.machine.gpu_probe import fp8_rate, main, measure

H200 = Gpu(0, "NVIDIA H200", 143771 << 20, 143000 << 20, "580.95.05")
MORE = {
    "fp8_product": 1.5e15,
    "launch": 3e-6,
    "host_to_device": 5.1e10,
    "sm_clock_mhz": 1980.0,
    "memory_clock_mhz": 3201.0,
}
TODAY = date(2026, 11, 30)


class FakeProbe:
    """Answers with rates as the real one prints them, or raises."""

    def __init__(self, answer: str | Exception = "") -> None:
        self.answer = answer or json.dumps(
            {"name": "NVIDIA H200", "read": 4.41e12, "copy": 4.1e12, "product": 7.91e14, "cache_bytes": 62914560} | MORE
        )
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str]) -> str:
        self.commands.append(list(command))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_card_is_measured_once_a_month(tmp_path: Path) -> None:
    probe, cache = FakeProbe(), tmp_path / "new" / "card.json"
    first = gpu_ceilings(H200, cache, TODAY, probe)
    assert first == Ceilings("NVIDIA H200", 4.41e12, 4.1e12, 7.91e14, 62914560, "2026-11-30", "580.95.05", **MORE)
    assert first.complete
    assert gpu_ceilings(H200, cache, date(2026, 12, 20), probe) == first
    assert len(probe.commands) == 1
    assert gpu_ceilings(H200, cache, date(2027, 1, 20), probe).measured_on == "2027-01-20"
    assert probe.commands[-1][-1] == "0"
    assert probe.commands[-1][1] == "-P"  # nothing in the user's folder is taken for a module of ours


def test_another_card_or_driver_or_a_wish_measures_again(tmp_path: Path) -> None:
    probe, cache = FakeProbe(), tmp_path / "card.json"
    gpu_ceilings(H200, cache, TODAY, probe)
    gpu_ceilings(Gpu(0, "NVIDIA A10G", 1, 1, H200.driver), cache, TODAY, probe)
    gpu_ceilings(Gpu(0, "NVIDIA A10G", 1, 1, "590.1"), cache, TODAY, probe)
    gpu_ceilings(Gpu(0, "NVIDIA A10G", 1, 1, "590.1"), cache, TODAY, probe, refresh=True)
    assert len(probe.commands) == 4


def test_measuring_again_keeps_the_better_of_each_rate(tmp_path: Path) -> None:
    cache = tmp_path / "card.json"
    gpu_ceilings(H200, cache, TODAY, FakeProbe())
    rates = {"name": "NVIDIA H200", "read": 4.5e12, "copy": 1e12, "product": 1e14, "cache_bytes": 62914560}
    other = FakeProbe(json.dumps(rates | MORE | {"launch": 2e-6, "fp8_product": None}))
    again = gpu_ceilings(H200, cache, TODAY, other, refresh=True)
    assert (again.read, again.copy, again.product) == (4.5e12, 4.1e12, 7.91e14)
    assert (again.launch, again.fp8_product) == (2e-6, 1.5e15)
    assert gpu_ceilings(H200, cache, TODAY, FakeProbe()) == again


@pytest.mark.parametrize("content", ["", "[]", '{"device": "NVIDIA H200"}', '{"device": "NVIDIA H200", "read": -1}'])
def test_a_damaged_file_is_measured_again(tmp_path: Path, content: str) -> None:
    cache = tmp_path / "card.json"
    cache.write_text(content)
    assert gpu_ceilings(H200, cache, TODAY, FakeProbe()).read == 4.41e12


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert gpu_ceilings(H200, tmp_path / "file" / "card.json", TODAY, FakeProbe()).product == 7.91e14


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (subprocess.CalledProcessError(1, "python", stderr="x\ntorch finds no GPU that it can use\n"), "finds no GPU"),
        (subprocess.CalledProcessError(-9, "python"), "exit code -9"),
        (subprocess.TimeoutExpired("python", 120), "timed out"),
        (OSError("no such file"), "no such file"),
    ],
)
def test_a_probe_that_fails_says_why_and_what_to_do(tmp_path: Path, failure: Exception, why: str) -> None:
    with pytest.raises(ConfigError, match=f"NVIDIA H200 could not be measured.*{why}.*give them by hand"):
        gpu_ceilings(H200, tmp_path / "card.json", TODAY, FakeProbe(failure))


@pytest.mark.parametrize("answer", ["warning\n{}", "{}", '{"read": 0, "copy": 1, "product": 1, "cache_bytes": 0}'])
def test_nonsense_from_a_probe_is_not_believed(tmp_path: Path, answer: str) -> None:
    cache = tmp_path / "card.json"
    with pytest.raises(ConfigError, match="could not be measured"):
        gpu_ceilings(H200, cache, TODAY, FakeProbe(answer))
    assert not cache.exists()


def test_given_rates_replace_measured_ones_and_the_rest_stays() -> None:
    measured = Ceilings("NVIDIA H200", 4.41e12, 4.1e12, 7.91e14, 1000, "2026-11-30")
    given = measured.with_given(read=4.8e12)
    assert (given.read, given.copy, given.product) == (4.8e12, 4.1e12, 7.91e14)
    assert measured.with_given() == measured


def test_several_devices_add_up_and_what_is_unknown_stays_so() -> None:
    two = Ceilings("A10G", read=6e11, cache_bytes=6000).times(2)
    assert (two.device, two.read, two.copy, two.product, two.cache_bytes) == ("2x A10G", 1.2e12, None, None, 12000)
    assert two.as_figures() == {"read_bytes_per_s": 1.2e12, "cache_bytes": 12000.0}


def test_a_cpu_has_the_memory_it_measured_and_the_caches_of_its_sockets(tmp_path: Path) -> None:
    for core, shared, size in ((0, "0-1", "32768K"), (1, "0-1", "32768K"), (2, "2-3", "32768K"), (3, "2-3", "torn")):
        folder = tmp_path / f"cpu{core}" / "cache" / "index3"
        folder.mkdir(parents=True)
        (folder / "size").write_text(size + "\n")
        (folder / "shared_cpu_list").write_text(shared + "\n")
    host = host_ceilings(MemoryCeiling(4e10, 4, "2026-11-30"), tmp_path)
    assert (host.device, host.read, host.product) == ("CPU (4 threads)", 4e10, None)
    assert host.cache_bytes == 2 * 32768 * 1024


def test_what_an_older_version_has_measured_counts_and_is_told_from_all(tmp_path: Path) -> None:
    cache = tmp_path / "card.json"
    old = {"device": "NVIDIA H200", "read": 4.4e12, "copy": 4.1e12, "product": 7.9e14}
    cache.write_text(json.dumps(old | {"measured_on": "2026-11-30", "driver": "580.95.05"}))
    known = known_ceilings(H200, cache, TODAY)
    assert known is not None
    assert known.read == 4.4e12
    assert not known.complete


def test_the_probe_measures_what_it_moves_and_multiplies() -> None:
    found = measure(torch.device("cpu"), 1 << 20, 64, seconds=0.01, clocks=lambda: (1980.0, 3201.0))
    assert 1e6 < found.host_to_device <= 1e13
    assert 1e-8 < found.launch < 1e-2
    assert (found.sm_clock_mhz, found.memory_clock_mhz, found.fp8_product) == (1980.0, 3201.0, None)
    assert fp8_rate(torch.device("cpu"), 64, 0.01) > 0  # the call is right, whatever a CPU makes of it
    assert 1e6 < found.copy <= 1e13
    assert 1e6 < found.read <= 1e13
    assert 1e5 < found.product < 1e15


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what happens without a GPU")
def test_the_probe_says_in_one_line_that_there_is_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(0) == 1
    assert capsys.readouterr().err == "torch finds no GPU that it can use\n"


def test_what_is_remembered_can_be_read_without_measuring(tmp_path: Path) -> None:
    cache = tmp_path / "card.json"
    assert known_ceilings(H200, cache, TODAY) is None
    measured = gpu_ceilings(H200, cache, TODAY, FakeProbe())
    assert known_ceilings(H200, cache, date(2026, 12, 20)) == measured
    assert known_ceilings(H200, cache, date(2027, 1, 20)) is None
    assert known_ceilings(Gpu(0, H200.name, 1, 1, "590.1"), cache, TODAY) is None
