"""A verdict that many scenarios share, said once: a sweep on a busy machine would repeat one sentence ten times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken.bench.records import Check
from firsttoken.bench.words import Words, same

_REPEATED = 2  # times that a verdict may be said in full


@dataclass(frozen=True, slots=True)
class Folded:
    """One check, and the scenarios whose verdict it stands for; its numbers are the first one's."""

    scenarios: tuple[str, ...]  # empty for a check of the whole run
    check: Check

    @property
    def where(self) -> Words:
        if len(self.scenarios) < 2:
            return same("".join(self.scenarios))
        first, more = self.scenarios[0], len(self.scenarios) - 1
        return Words(f"{first}, and {more} more like it", f"{first} 等 {more + 1} 个场景")


def fold(named: Sequence[tuple[str, Check]]) -> list[Folded]:
    """In the order of first appearance; verdicts of one check and level are one where there are more than two."""
    groups: dict[tuple[str, str], list[tuple[str, Check]]] = {}
    for scenario, check in named:
        groups.setdefault((check.name, check.level), []).append((scenario, check))
    folded: list[Folded] = []
    for group in groups.values():
        if len(group) > _REPEATED:
            folded.append(Folded(tuple(scenario for scenario, _ in group), group[0][1]))
        else:
            folded += [Folded((scenario,) if scenario else (), check) for scenario, check in group]
    return folded
