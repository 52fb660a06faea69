"""Where a result comes from."""

from __future__ import annotations

import platform
from pathlib import Path

from firsttoken.bench.machine_facts import Facts, machine_facts
from firsttoken.machine.gpu import Gpu
from firsttoken.machine.host import Host

GIB = 1024**3


def facts(folder: Path, gpus: list[Gpu], url: str = "http://127.0.0.1:8000", cpuinfo: str = "") -> Facts:
    path = folder / "cpuinfo"
    path.write_text(cpuinfo)
    return machine_facts(url, list_gpus=lambda: gpus, host=lambda: Host(16, 128 * GIB, GIB), cpuinfo=path)


def test_processor_memory_and_cards_are_named(tmp_path: Path) -> None:
    found = facts(
        tmp_path, [Gpu(0, "NVIDIA H200", GIB, 0, "580.95.05")], cpuinfo="processor : 0\nmodel name : Xeon 8481\n"
    )
    assert found["cpu"] == "Xeon 8481"
    assert (found["cores"], found["memory"]) == (16.0, 128.0 * GIB)
    assert (found["gpu"], found["gpu memory"], found["driver"]) == ("NVIDIA H200", 1.0 * GIB, "580.95.05")


def test_several_cards_are_counted_by_name(tmp_path: Path) -> None:
    names = ("NVIDIA A10G", "NVIDIA A10G", "NVIDIA H200")
    found = facts(tmp_path, [Gpu(i, name, GIB, 0, "580") for i, name in enumerate(names)])
    assert found["gpu"] == "2x NVIDIA A10G, 1x NVIDIA H200"
    assert found["gpu memory"] == 3.0 * GIB


def test_without_a_card_or_a_processors_name_only_what_is_there_is_told(tmp_path: Path) -> None:
    found = facts(tmp_path, [])
    assert found["cpu"] == platform.machine()
    assert "gpu" not in found


def test_of_another_machine_nothing_is_claimed(tmp_path: Path) -> None:
    found = facts(tmp_path, [Gpu(0, "NVIDIA H200", GIB, 0, "580")], url="http://192.0.2.1:8000")
    assert found == {"server": "on another machine", "client's cores": 16.0}


def test_this_very_machine_has_facts() -> None:
    assert machine_facts("http://localhost:8000")["cores"]
