"""What tells that something beside the settings acted on a run: other programs, or a card that protects itself.

Only what does not depend on the figure that a run measured may have it measured again. A run is never judged by its
figure: without its slowest runs a setting would look faster, and every interval narrower, than it is. So

- the CPU time of others counts, and not the host's load, in which the server's own is;
- the work on the card of processes that were there before the server or stay after it counts, and not how busy it is;
- a card that gets too hot or too little current counts, and not its power cap: a setting that works the card harder
  reaches that by itself;
- how full the client was does not count, because a faster server fills it more. That is said, and the run stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

from firsttoken.bench.energy import Usage, scenario_usage
from firsttoken.bench.records import RunResult

OTHERS_SHARE, OTHERS_CORES = 0.1, 1.0  # of the cores, and how many at most, that others may use in a quiet run
HELD_BACK = 0.05  # share of a run's samples in which a card may protect itself
CARD_SHARE = 5.0  # per cent of a card's multiprocessors that others may keep busy
PROTECTION = {
    "hardware slowdown": "硬件降频",
    "software thermal slowdown": "软件过热降频",
    "hardware thermal slowdown": "硬件过热降频",
    "power brake": "外部供电制动",
}
"""NVML's reasons that come of cooling and of current, by their Chinese names. The software power cap is none."""


class Disturbance(msgspec.Struct, frozen=True):
    """One thing that acted on a run."""

    kind: Literal["cpu", "gpu", "clocks"]
    text: str  # a clause, with the numbers
    text_zh: str


def disturbances(result: RunResult, strangers: Collection[str] = ()) -> list[Disturbance]:
    """What acted on a run's measured requests, each kind once: as in the scenario where it was worst.

    `strangers`: users of cards that are not the server, as "gpu0:<pid>". Empty where nothing did, and where the machine
    does not tell.
    """
    found = [scenario_usage(scenario, result.samples) for scenario in result.scenarios]
    return [*_by_others(found), *_on_the_card(found, strangers), *_by_clocks(found)]


def _by_others(found: Iterable[Usage]) -> list[Disturbance]:
    known = [(used.other_cores, used.cores) for used in found if used.other_cores is not None and used.cores]
    others, cores = max(known, default=(0.0, 1.0))
    if others < min(OTHERS_SHARE * cores, OTHERS_CORES):
        return []
    return [
        Disturbance(
            "cpu",
            f"other programs used {others:.1f} of {cores:.0f} cores",
            f"其他程序占用了 {cores:.0f} 个核中的 {others:.1f} 个",
        )
    ]


def _on_the_card(found: Iterable[Usage], strangers: Collection[str]) -> list[Disturbance]:
    """On a card that the server uses as well."""
    worst = 0.0
    for used in found:
        ours = {user.partition(":")[0] for user, share in used.card_users.items() if user not in strangers and share}
        for card in ours:
            theirs = [
                used.card_users[user] for user in strangers if user.startswith(f"{card}:") and user in used.card_users
            ]
            worst = max(worst, sum(theirs))
    if worst < CARD_SHARE:
        return []
    return [
        Disturbance(
            "gpu",
            f"other programs kept {worst:.0f} % of the card's multiprocessors busy",
            f"其他程序占用了显卡 {worst:.0f} % 的多处理器",
        )
    ]


def _by_clocks(found: Iterable[Usage]) -> list[Disturbance]:
    worst: dict[str, float] = {}
    for used in found:
        for reason, share in used.held_back.items():
            if reason in PROTECTION and share >= max(HELD_BACK, worst.get(reason, 0.0)):
                worst[reason] = share
    if not worst:
        return []
    return [
        Disturbance(
            "clocks",
            "the card slowed itself down: " + ", ".join(f"{reason} {share:.0%}" for reason, share in worst.items()),
            "显卡自行降频：" + "，".join(f"{PROTECTION[reason]} {share:.0%}" for reason, share in worst.items()),
        )
    ]


def alike(first: Sequence[Disturbance], second: Sequence[Disturbance]) -> bool:
    """Whether two runs can be compared: both quiet, or both disturbed by the same kinds of things.

    A quiet run against a disturbed one tells of the disturbance; two disturbed ones are only noisier.
    """
    return {one.kind for one in first} == {one.kind for one in second}


def client_was_the_limit(result: RunResult) -> bool:
    """Whether the benchmark's own check says so of any scenario."""
    return any(check.name == "client" and check.level == "fail" for one in result.scenarios for check in one.checks)
