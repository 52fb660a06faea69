"""Is there memory for a model, and is it near to what uses it?"""

from __future__ import annotations

from collections.abc import Sequence

from firsttoken.doctor.finding import Finding
from firsttoken.doctor.quantities import count, gibibytes
from firsttoken.machine.card_state import CardState
from firsttoken.machine.memory import Memory

_AREA = "host"
_GIB = 1024**3
_BESIDE_A_CARD = 4 * _GIB  # torch, CUDA's libraries, the processes, buffers to load through
_WITHOUT = 2 * _GIB  # the demo model and its server


def check_memory(memory: Memory, cards: Sequence[CardState], allowed: Sequence[int]) -> list[Finding]:
    """`allowed` are the cores that this process may run on."""
    return [
        check_free(memory, bool(cards)),
        check_swap(memory),
        check_killed(memory),
        check_huge_pages(memory, bool(cards)),
        check_nodes(memory, cards, allowed),
    ]


def check_free(memory: Memory, has_card: bool) -> Finding:
    why = (
        "The weights pass through this memory while they load, and the page cache makes the next start fast."
        if has_card
        else "Without a card weights and KV cache live here."
    )
    reading = f"{gibibytes(memory.available)} free of {gibibytes(memory.total)}"
    least = _BESIDE_A_CARD if has_card else _WITHOUT
    if memory.available >= least:
        return Finding(_AREA, "memory", "ok", reading, why)
    fix = f"Free memory or raise the container's limit, to {gibibytes(least)} at least."
    return Finding(_AREA, "memory", "bad" if memory.available < least / 2 else "warn", reading, why, fix)


def check_swap(memory: Memory) -> Finding:
    why = "A page of a server that was swapped out must come back from a disk: single tokens stall."
    if memory.swap_used is None or memory.swap_total is None:
        return Finding(_AREA, "swap", "unread", "the system does not tell", why)
    if memory.swap_total == 0:
        return Finding(_AREA, "swap", "ok", "none", why)
    reading = f"{gibibytes(memory.swap_used)} used of {gibibytes(memory.swap_total)}"
    if memory.waiting_percent is not None and memory.waiting_percent >= 1:
        reading += f"; programs waited for memory in {memory.waiting_percent:.0f} % of the last 10 s"
        fix = "Stop what takes the memory; `vmstat 1` shows what goes in and out (si, so)."
        return Finding(_AREA, "swap", "bad", reading, why, fix)
    if memory.swap_used > 0.1 * memory.total:
        fix = "Free memory first, then `sudo swapoff -a && sudo swapon -a` brings all back; `vm.swappiness=1` keeps it."
        return Finding(_AREA, "swap", "warn", reading, why, fix)
    return Finding(_AREA, "swap", "ok", reading, why)


def check_killed(memory: Memory) -> Finding:
    why = (
        "The kernel ends a process, mostly the largest, when a container's memory runs out: the engine, without a word."
    )
    if memory.killed is None:
        return Finding(_AREA, "killed for memory", "unread", "this container's group does not tell", why)
    if not memory.killed:
        return Finding(_AREA, "killed for memory", "ok", "none in this container", why)
    fix = "Raise the container's memory limit, or lower what is used (`serve --kv-cache-memory` on a CPU)."
    return Finding(_AREA, "killed for memory", "warn", _killed(memory.killed), why, fix)


def check_huge_pages(memory: Memory, has_card: bool) -> Finding:
    why = "Reading all weights for each token touches every page: with pages of 2 MiB the processor looks up far fewer."
    if memory.huge_pages is None:
        return Finding(_AREA, "huge pages", "unread", "this kernel does not tell", why)
    reading = f"transparent ones: {memory.huge_pages}"
    if has_card:
        return Finding(_AREA, "huge pages", "ok", f"{reading}; weights on a card do not need them", why)
    if memory.huge_pages == "never":
        fix = "Run `echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled` (until the next restart)."
        return Finding(_AREA, "huge pages", "warn", reading, why, fix)
    return Finding(_AREA, "huge pages", "ok", reading, why)


def check_nodes(memory: Memory, cards: Sequence[CardState], allowed: Sequence[int]) -> Finding:
    why = "Memory on another node is slower to reach, from the cores as from a card."
    if len(memory.nodes) <= 1:
        return Finding(_AREA, "NUMA", "ok", "one node", why)
    own = {node for node, cores in memory.nodes.items() if set(cores) & set(allowed)}
    reading = f"{count(len(memory.nodes), 'node')}, this process may run on {_nodes(own)}"
    placed = {card.index: card.numa_node for card in cards if card.numa_node is not None}
    for index, node in placed.items():
        reading += f", card {index} is on {_nodes({node})}"
    wanted = next(iter(placed.values()), min(own, default=0))
    fix = f"Start the server with `numactl --cpunodebind={wanted} --membind={wanted} firsttoken serve …`."
    if placed and not set(placed.values()) & own:
        return Finding(_AREA, "NUMA", "bad", reading, why, fix)
    if len(own) > 1:
        return Finding(_AREA, "NUMA", "warn", reading, why, fix)
    return Finding(_AREA, "NUMA", "ok", reading, why)


def _nodes(nodes: set[int]) -> str:
    return f"node{'s' if len(nodes) != 1 else ''} {', '.join(map(str, sorted(nodes)))}"


def _killed(number: int) -> str:
    return f"{number} process{'es were' if number > 1 else ' was'} killed in this container"
