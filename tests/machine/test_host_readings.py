"""Readings of a host, from small trees of files that look like /proc and /sys."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from firsttoken.chips import launched_as
from firsttoken.machine.disk import model_folder, read_disk, read_rate
from firsttoken.machine.driver import read_driver
from firsttoken.machine.launch_tables import measured_cards
from firsttoken.machine.memory import core_list, read_memory
from firsttoken.machine.processor import read_processor
from firsttoken.machine.software import read_software
from firsttoken.machine.system import read_system

MEMINFO = "MemTotal: 1000 kB\nMemAvailable: 600 kB\nSwapTotal: 200 kB\nSwapFree: 50 kB\nHugePages_Total: 0\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_governors_quota_pressure_and_instructions_of_a_processor(tmp_path: Path) -> None:
    policy = "sys/devices/system/cpu/cpufreq/policy"
    root = tree(
        tmp_path,
        {
            "proc/cpuinfo": "model name\t: AMD EPYC\nflags\t\t: fpu avx2 fma\n\nflags: amx_int8\n",
            "proc/pressure/cpu": "some avg10=12.50 avg60=3.00 total=9\nfull avg10=0.00 avg60=0 total=0\n",
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.stat": "usage_usec 5\nnr_periods 200\nnr_throttled 30\n",
            f"{policy}0/scaling_governor": "powersave\n",
            f"{policy}0/scaling_driver": "intel_pstate\n",
            f"{policy}0/energy_performance_preference": "balance_power\n",
            f"{policy}1/scaling_governor": "powersave\n",
            f"{policy}2/scaling_governor": "performance\n",
        },
    )
    found = read_processor(root)
    assert (found.name, found.instructions) == ("AMD EPYC", ("avx2", "fma"))
    assert (found.governors, found.scaling_driver) == ({"powersave": 2, "performance": 1}, "intel_pstate")
    assert (found.preferences, found.throttled_share, found.waiting_percent) == ({"balance_power": 1}, 0.15, 12.5)


def test_a_machine_without_those_files_has_unknowns_and_no_error(tmp_path: Path) -> None:
    root = tree(tmp_path, {})
    processor, memory = read_processor(root), read_memory(root)
    assert (processor.name, processor.governors, processor.waiting_percent) == (None, {}, None)
    assert (memory.killed, memory.huge_pages, memory.nodes) == (None, None, {})
    system = read_system([8000], root)
    assert (system.kernel, system.container, system.ports_taken) == (None, None, {})
    assert read_driver(None, "no driver", root).on_bus == ()


def test_swap_huge_pages_kills_and_nodes_of_a_memory(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.events": "low 0\noom 3\noom_kill 2\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "sys/devices/system/node/node0/cpulist": "0-1,4\n",
            "sys/devices/system/node/node1/cpulist": "2-3\n",
        },
    )
    found = read_memory(root)
    assert (found.swap_total, found.swap_used) == (200 * 1024, 150 * 1024)
    assert (found.killed, found.huge_pages, found.nodes) == (2, "madvise", {0: (0, 1, 4), 1: (2, 3)})
    assert core_list("") == ()


def test_modules_and_cards_on_the_bus(tmp_path: Path) -> None:
    bus = "sys/bus/pci/devices/"
    root = tree(
        tmp_path,
        {
            "proc/modules": "nouveau 2400256 1 - Live 0x0\nmxm_wmi 12288 1 nouveau, Live 0x0\n",
            f"{bus}0000:01:00.0/vendor": "0x10de\n",
            f"{bus}0000:01:00.0/class": "0x030000\n",
            f"{bus}0000:01:00.1/vendor": "0x10de\n",
            f"{bus}0000:01:00.1/class": "0x040300\n",  # the card's sound
            f"{bus}0000:02:00.0/vendor": "0x8086\n",
            f"{bus}0000:02:00.0/class": "0x030000\n",
        },
    )
    found = read_driver(None, "Driver Not Loaded", root)
    assert (found.modules, found.on_bus, found.trouble) == (("nouveau",), ("0000:01:00.0",), "Driver Not Loaded")


@pytest.mark.parametrize(
    ("file", "name"),
    [(".dockerenv", "docker"), ("run/.containerenv", "podman"), ("proc/1/cgroup", "kubernetes")],
)
def test_a_container_is_known_by_its_marks(tmp_path: Path, file: str, name: str) -> None:
    assert read_system([], tree(tmp_path, {file: "0::/kubepods/pod1\n"})).container == name


def test_a_port_that_this_process_listens_on_is_taken_by_it() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        owner = read_system([port]).ports_taken[port]
        assert owner is not None
        assert owner.endswith(f"process {os.getpid()}")
    assert read_system([port]).ports_taken == {}


def test_a_disks_rate_comes_from_its_largest_weight_file(tmp_path: Path) -> None:
    (tmp_path / "small.safetensors").write_bytes(b"x")
    (tmp_path / "notes.txt").write_bytes(b"x" * 100)
    (tmp_path / "large.gguf").write_bytes(os.urandom(33 * 1024 * 1024))
    found = read_disk(tmp_path, seconds=0.2)
    if found.why_unmeasured is None:
        assert found.measured_with == str(tmp_path / "large.gguf")
        assert found.rate is not None
        assert found.rate > 1e6
    else:  # a file system in memory has no reads past the page cache
        assert (found.rate, found.measured_with) == (None, None)
    assert found.free > 0


def test_a_folder_that_is_not_there_yet_is_judged_by_the_one_above(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    found = read_disk(tmp_path / "none" / "such", mounts=mounts)
    assert (found.folder, found.filesystem, found.rate) == (str(tmp_path), "nfs4", None)
    assert found.why_unmeasured == "there is no weight file to read"
    with pytest.raises(OSError, match="too short to tell"):
        read_rate(mounts)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c", "HOME": "/d"}, "/c/huggingface/hub"),
        ({"HOME": "/d"}, "/d/.cache/huggingface/hub"),
    ],
)
def test_the_models_folder_is_the_hubs(environ: dict[str, str], folder: str) -> None:
    assert model_folder(environ) == Path(folder)


@pytest.mark.parametrize(
    ("line", "cuda"),
    [("cuda: Optional[str] = '13.0'", "13.0"), ('cuda = "12.8"', "12.8"), ("cuda: Optional[str] = None", None)],
)
def test_torchs_cuda_is_read_without_importing_torch(tmp_path: Path, line: str, cuda: str | None) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text(f"__version__ = '2.11.0'\n{line}\nhip = None\n")
    found = read_software(lambda: None, lambda: "/usr/bin/gcc", [tmp_path])
    assert (found.torch_cuda, found.c_compiler) == (cuda, "/usr/bin/gcc")
    assert found.torch is not None


def test_cards_with_measured_launches_are_those_of_readable_tables(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"card": "NVIDIA A10", "products": []}')
    (tmp_path / "a2.json").write_text('{"card": "NVIDIA H200", "like": ["NVIDIA H100"], "products": []}')
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.json").write_text("[]")
    found = measured_cards([tmp_path, tmp_path / "none"])
    assert found == {"NVIDIA A10": [], "NVIDIA H200": ["NVIDIA H100"]}
    assert launched_as("NVIDIA A10", found) == "NVIDIA A10"
    assert launched_as("NVIDIA A100", found) is None
    assert launched_as("NVIDIA H100 PCIe", found) == "NVIDIA H200"
    assert "NVIDIA H200" in measured_cards()
