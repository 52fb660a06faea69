"""Host readings, on small trees that look like /proc and /sys/fs/cgroup."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from firsttoken.machine.host import read_host

GIB = 1024**3
MEMINFO = "MemTotal:       33554432 kB\nMemFree:         1048576 kB\nMemAvailable:   16777216 kB\n"


class Machine:
    """A fake host below a temporary folder."""

    def __init__(self, root: Path, own_group: str) -> None:
        self.proc, self.cgroup = root / "proc", root / "cgroup"
        self.write(self.proc / "meminfo", MEMINFO)
        self.write(self.proc / "self" / "cgroup", own_group)
        self.cgroup.mkdir()

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def group(self, folder: str, **files: str) -> None:
        for name, text in files.items():
            self.write(self.cgroup / folder / name.replace("__", "."), text)


@pytest.fixture
def unified(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "0::/user/job\n")


def test_without_a_limit_memory_is_the_hosts(unified: Machine) -> None:
    host = read_host(unified.proc, unified.cgroup)
    assert (host.memory_total, host.memory_available) == (32 * GIB, 16 * GIB)


def test_a_containers_limit_counts_less_what_it_uses_beyond_file_cache(unified: Machine) -> None:
    unified.group(
        "user/job",
        memory__max=f"{8 * GIB}\n",
        memory__current=f"{5 * GIB}\n",
        memory__stat=f"inactive_file {2 * GIB}\n",
    )
    host = read_host(unified.proc, unified.cgroup)
    assert (host.memory_total, host.memory_available) == (8 * GIB, 5 * GIB)


def test_a_limit_on_an_outer_group_binds_too(unified: Machine) -> None:
    unified.group("user", memory__max=f"{4 * GIB}\n", memory__current=f"{GIB}\n")
    unified.group("user/job", memory__max="max\n", memory__current=f"{GIB}\n")
    assert read_host(unified.proc, unified.cgroup).memory_available == 3 * GIB


def test_a_group_mounted_as_the_root_of_a_container_is_found(unified: Machine) -> None:
    unified.group(".", memory__max=f"{2 * GIB}\n", memory__current="0\n", cpu__max="100000 100000\n")
    host = read_host(unified.proc, unified.cgroup)
    assert (host.memory_available, host.cores) == (2 * GIB, 1)


def test_the_first_version_of_control_groups_is_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "5:cpu,cpuacct:/job\n4:memory:/job\n")
    machine.group(
        "memory/job",
        memory__limit_in_bytes=f"{6 * GIB}\n",
        memory__usage_in_bytes=f"{2 * GIB}\n",
        memory__stat=f"total_inactive_file {GIB}\n",
    )
    machine.group("cpu,cpuacct/job", cpu__cfs_quota_us="100000\n", cpu__cfs_period_us="100000\n")
    host = read_host(machine.proc, machine.cgroup)
    assert (host.memory_total, host.memory_available, host.cores) == (6 * GIB, 5 * GIB, 1)


def test_the_first_versions_word_for_no_limit_is_no_limit(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "4:memory:/\n")
    machine.group("memory", memory__limit_in_bytes="9223372036854771712\n", memory__usage_in_bytes="5\n")
    assert read_host(machine.proc, machine.cgroup).memory_available == 16 * GIB


def test_a_quota_of_half_a_core_still_is_one_core(unified: Machine) -> None:
    unified.group("user/job", cpu__max="50000 100000\n")
    assert read_host(unified.proc, unified.cgroup).cores == 1


def test_cores_never_exceed_what_the_process_may_use(unified: Machine) -> None:
    unified.group("user/job", cpu__max="6400000 100000\n")
    assert 1 <= read_host(unified.proc, unified.cgroup).cores <= (os.cpu_count() or 1)


def test_this_very_host_can_be_read() -> None:
    host = read_host()
    assert 0 < host.memory_available <= host.memory_total
