"""What this host has: cores and memory that this process may use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_NO_LIMIT = 1 << 60  # cgroup v1 says "unlimited" with a number near 2^63


@dataclass(frozen=True, slots=True)
class Host:
    """A reading of the host at one moment."""

    cores: int  # that this process may run on, container quotas included
    memory_total: int  # bytes, the container's limit where it is lower
    memory_available: int  # bytes that can be taken without swapping


def read_host(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> Host:
    """Reads cores and memory; `proc` and `cgroup` are the mounts of those names.

    Where neither mount exists (macOS), memory is what `sysconf` says and all of it counts as available.
    """
    total, available = _meminfo(proc / "meminfo")
    limit, used = _cgroup_memory(proc, cgroup)
    if limit is not None:
        total = min(total, limit)
        available = min(available, max(limit - used, 0))
    return Host(cores=_cores(proc, cgroup), memory_total=total, memory_available=available)


def _meminfo(path: Path) -> tuple[int, int]:
    """Bytes in all and available, of the whole host."""
    if not path.exists():
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total, total
    fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)

    def kib(name: str) -> int:
        return int(fields[name].split()[0]) * 1024

    return kib("MemTotal"), kib("MemAvailable") if "MemAvailable" in fields else kib("MemFree")


def own_groups(proc: Path, cgroup: Path) -> list[Path]:
    """Folders of this process's control groups, the innermost first, up to the mount (both versions of the interface).

    A container often mounts only its own group, and then the path in /proc does not exist below the mount.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        lines = []
    found: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",") if controllers else []
        if names and not {"memory", "cpu"} & set(names):
            continue
        for mount in [cgroup] if not names else [cgroup / controllers, *(cgroup / name for name in names)]:
            folder = mount / path.lstrip("/")
            while folder != mount and mount in folder.parents:
                found.append(folder)
                folder = folder.parent
            found.append(mount)
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def _read_number(path: Path) -> int | None:
    try:
        text = path.read_text().split()[0]
        number = int(text)
    except (OSError, ValueError, IndexError):
        return None  # absent, or "max"
    return number if number < _NO_LIMIT else None


def _cgroup_memory(proc: Path, cgroup: Path) -> tuple[int | None, int]:
    """The tightest limit in bytes and what its group uses without the reclaimable file cache."""
    best: tuple[int | None, int] = (None, 0)
    for folder in own_groups(proc, cgroup):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit = _read_number(folder / limit_name)
            if limit is None:
                continue
            used = (_read_number(folder / used_name) or 0) - _inactive_file(folder / "memory.stat")
            if best[0] is None or limit - used < best[0] - best[1]:
                best = (limit, max(used, 0))
    return best


def _inactive_file(path: Path) -> int:
    """Bytes of file cache that the kernel gives back before it refuses memory."""
    try:
        stat = dict(line.split() for line in path.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))


def _cores(proc: Path, cgroup: Path) -> int:
    """Cores of the affinity mask, cut to the tightest CPU quota and never below one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in own_groups(proc, cgroup):
        quota = cpu_quota(folder)
        if quota is not None:
            cores = min(cores, max(int(quota), 1))
    return cores


def cpu_quota(folder: Path) -> float | None:
    """Cores' worth of time that one group may use, or None without a limit."""
    try:
        limit, period = (folder / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    limit_v1 = _read_number(folder / "cpu.cfs_quota_us")
    period_v1 = _read_number(folder / "cpu.cfs_period_us")
    if limit_v1 is None or limit_v1 <= 0 or not period_v1:
        return None
    return limit_v1 / period_v1
