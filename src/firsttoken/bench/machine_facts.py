"""What machine a result comes from, as far as this process sees it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

from firsttoken.bench.sources import is_local
from firsttoken.machine.gpu import Gpu, read_gpus
from firsttoken.machine.host import Host, read_host

Facts = dict[str, str | float | None]


def machine_facts(
    url: str,
    *,
    list_gpus: Callable[[], list[Gpu]] = read_gpus,
    host: Callable[[], Host] = read_host,
    cpuinfo: Path = Path("/proc/cpuinfo"),
) -> Facts:
    """Processor, memory (bytes) and cards of the server's machine; of another machine only that it is one."""
    if not is_local(url):
        return {"server": "on another machine", "client's cores": float(host().cores)}
    reading = host()
    facts: Facts = {
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _processor(cpuinfo),
        "cores": float(reading.cores),
        "memory": float(reading.memory_total),
    }
    gpus = list_gpus()
    names = [gpu.name for gpu in gpus]
    if gpus:
        counted = [f"{names.count(name)}x {name}" for name in dict.fromkeys(names)]
        facts["gpu"] = names[0] if len(names) == 1 else ", ".join(counted)
        facts["gpu memory"] = float(sum(gpu.memory_total for gpu in gpus))
        facts["driver"] = gpus[0].driver
    return facts


def _processor(cpuinfo: Path) -> str:
    """The model's name; the architecture where the system does not tell it."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()
