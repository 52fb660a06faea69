"""The host's memory: what is free, what was swapped out, how large its pages are and how many nodes it has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from firsttoken.machine.host import own_groups, read_host
from firsttoken.machine.kernel_files import pressure, read_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One reading. What the system does not tell is None or empty."""

    total: int  # bytes, the container's limit where it is lower
    available: int  # bytes that can be taken without swapping
    swap_total: int | None
    swap_used: int | None
    waiting_percent: float | None  # of the last ten seconds in which somebody waited for memory
    killed: int | None  # processes of this container that were killed for memory
    huge_pages: str | None  # "always", "madvise" or "never": transparent ones
    nodes: dict[int, tuple[int, ...]]  # memory node: its cores


def read_memory(root: Path = Path("/")) -> Memory:
    """Reads /proc and /sys below `root`."""
    proc, cgroup = root / "proc", root / "sys/fs/cgroup"
    host = read_host(proc, cgroup)
    fields = _fields(proc / "meminfo")
    swap, free = fields.get("SwapTotal"), fields.get("SwapFree")
    return Memory(
        total=host.memory_total,
        available=host.memory_available,
        swap_total=swap,
        swap_used=None if swap is None or free is None else swap - free,
        waiting_percent=pressure(proc / "pressure/memory"),
        killed=_killed(proc, cgroup),
        huge_pages=_chosen(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        nodes=_nodes(root / "sys/devices/system/node"),
    )


def core_list(text: str) -> tuple[int, ...]:
    """The kernel's list form: "0-3,8" is 0, 1, 2, 3, 8."""
    found: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    return tuple(found)


def _fields(path: Path) -> dict[str, int]:
    """Bytes by name."""
    lines = (line.split() for line in (read_file(path) or "").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) == 3}


def _killed(proc: Path, cgroup: Path) -> int | None:
    for folder in own_groups(proc, cgroup):
        text = read_file(folder / "memory.events") or read_file(folder / "memory.oom_control") or ""
        for line in text.splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


def _chosen(path: Path) -> str | None:
    """The word in brackets: "always [madvise] never"."""
    text = read_file(path) or ""
    return text[text.index("[") + 1 : text.index("]")] if "[" in text else None


def _nodes(folder: Path) -> dict[int, tuple[int, ...]]:
    return {
        int(node.name.removeprefix("node")): core_list(read_file(node / "cpulist") or "")
        for node in sorted(folder.glob("node[0-9]*"))
    }
