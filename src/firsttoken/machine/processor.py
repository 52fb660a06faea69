"""The host's processor: how many cores this process may use, and how fast the system lets them run."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from firsttoken.machine.host import own_groups, read_host
from firsttoken.machine.kernel_files import pressure, read_file

_WIDE = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """One reading. What the system does not tell is None or empty."""

    name: str | None
    instructions: tuple[str, ...]  # of the wide ones that kernels can use
    logical: int  # cores of the whole machine
    allowed: tuple[int, ...]  # those of them that this process may run on
    cores: int  # allowed cores, cut to the container's quota
    throttled_share: float | None  # of scheduling periods in which this container's quota ran out
    governors: dict[str, int] = field(default_factory=dict)  # governor: how many groups of cores have it
    scaling_driver: str | None = None  # "intel_pstate"
    preferences: dict[str, int] = field(default_factory=dict)  # energy preference: how many groups of cores
    waiting_percent: float | None = None  # of the last ten seconds in which somebody waited for a core


def read_processor(root: Path = Path("/")) -> Processor:
    """Reads /proc and /sys below `root`."""
    proc, cgroup = root / "proc", root / "sys/fs/cgroup"
    policies = sorted((root / "sys/devices/system/cpu/cpufreq").glob("policy*"))
    fields = _first_core(proc / "cpuinfo")
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    drivers = [name for policy in policies if (name := read_file(policy / "scaling_driver"))]
    return Processor(
        name=fields.get("model name"),
        instructions=tuple(name for name in _WIDE if name in flags),
        logical=os.cpu_count() or 1,
        allowed=tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (),
        cores=read_host(proc, cgroup).cores,
        throttled_share=_throttled(proc, cgroup),
        governors=_count(policies, "scaling_governor"),
        scaling_driver=drivers[0] if drivers else None,
        preferences=_count(policies, "energy_performance_preference"),
        waiting_percent=pressure(proc / "pressure/cpu"),
    )


def _first_core(path: Path) -> dict[str, str]:
    text = (read_file(path) or "").split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _count(policies: list[Path], name: str) -> dict[str, int]:
    return dict(Counter(value for policy in policies if (value := read_file(policy / name))))


def _throttled(proc: Path, cgroup: Path) -> float | None:
    """Of the innermost group that has a quota's statistics."""
    for folder in own_groups(proc, cgroup):
        lines = (read_file(folder / "cpu.stat") or "").splitlines()
        pairs = dict(line.split() for line in lines if len(line.split()) == 2)
        periods = int(pairs.get("nr_periods", 0))
        if periods:
            return int(pairs.get("nr_throttled", 0)) / periods
    return None
