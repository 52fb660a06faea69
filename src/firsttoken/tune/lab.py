"""Where a session measures: runs of servers in blocks, their failures, and the time that they took."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from firsttoken.errors import Unavailable
from firsttoken.tune.arms import BASELINE, Arm, Config, Settings, Value, in_order, named, settings_of
from firsttoken.tune.disturbance import Disturbance, alike
from firsttoken.tune.journal import Journal
from firsttoken.tune.quality import Quality
from firsttoken.tune.repeats import RESTLESS, Repeats, sentence

_TIMES_BASELINE = 6.0  # a run that takes so much longer than the baseline's is ended
_LEAST_LIMIT = 60.0  # seconds


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of a server and what it measured. Without a value it failed."""

    value: float | None  # of the objective's figure, above zero
    seconds: float  # launch, load and stop
    failure: str = ""  # one sentence
    figures: dict[str, float] = {}  # what else a report shows
    slo_met: int = 0  # requests within every limit
    slo_of: int = 0
    result: str = ""  # the file with everything
    disturbed: list[Disturbance] = []  # what else acted on it
    client_limited: bool = False  # the benchmark's client was the limit, so the figure is not the server's


class Measure(Protocol):
    """Launches a server with these settings, measures it with prompts of this seed, and stops it whole.

    `limit`: seconds after which the run counts as failed. What goes wrong with the server is in the answer; errors
    are for what would go wrong with every server.
    """

    def __call__(self, settings: Settings, *, number: int, seed: int, limit: float | None) -> Run: ...


Judge = Callable[[Settings, Settings], Quality]
"""Quality of the second settings' answers against the first's."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the session begins."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Trying:
    number: int
    config: Config


@dataclass(frozen=True, slots=True)
class Tried:
    number: int
    config: Config
    run: Run
    spent: float  # seconds of the budget
    again: bool  # from the journal


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence on what has been found."""

    text: str


Event = Stage | Trying | Tried | Said


@dataclass(frozen=True, slots=True)
class Kept:
    """A run with where it belongs."""

    block: int
    config: Config
    run: Run


class Lab:
    """Runs configs and remembers what failed."""

    def __init__(
        self,
        journal: Journal,
        measure: Measure,
        judge: Judge,
        *,
        baseline: Mapping[str, Value],
        lower_is_better: bool,
        budget: float,
        seed: int,
        tell: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self._journal, self._measure, self._judge = journal, measure, judge
        self._baseline = dict(baseline)
        self._sign = -1.0 if lower_is_better else 1.0
        self._seed = seed
        self.tell = tell
        self.budget = budget
        self.spent = 0.0
        self.runs: list[Kept] = []  # that count
        self.unlike: list[tuple[Config, Config, float]] = []  # pairs of a quiet and a disturbed run, with their gains
        self.measured = 0
        self.repeats = Repeats(budget)
        self.failed: dict[Config, str] = {}  # constraints: nothing that holds one of these is tried again
        self.blocks = 0

    # --- time ---

    @property
    def run_seconds(self) -> float:
        """Of a run as they were so far."""
        return statistics.median([kept.run.seconds for kept in self.runs]) if self.runs else 0.0

    @property
    def left(self) -> float:
        """Seconds of the budget."""
        return max(self.budget - self.spent, 0.0)

    @property
    def runs_left(self) -> int:
        return int(self.left / self.run_seconds) if self.run_seconds else 0

    def seconds_of(self, configs: Iterable[Config]) -> float:
        """What a run of each will take: as those runs took whose settings are nearest to its own."""
        return sum(map(self._seconds_of, set(configs)))

    def _seconds_of(self, config: Config) -> float:
        ran = [kept for kept in self.runs if kept.run.value is not None]
        nearest = min((len(kept.config ^ config) for kept in ran), default=0)
        near = [kept.run.seconds for kept in ran if len(kept.config ^ config) == nearest]
        return statistics.median(near) if near else self.run_seconds

    # --- runs ---

    def block(self, configs: Iterable[Config], *, after: float = 0.0) -> dict[Config, Run]:
        """One run of each config, close in time, in random order, with the same prompts. Failed ones are left out.

        `after`: seconds of the budget that are planned for what follows, and so not for repeats of disturbed runs.
        Raises Unavailable where the baseline fails twice.
        """
        self.blocks += 1
        draw = random.Random(f"{self._seed}/{self.blocks}")
        order = sorted(set(configs), key=lambda config: [str(arm) for arm in in_order(config)])
        draw.shuffle(order)
        seed = draw.getrandbits(53)
        done: dict[Config, Run] = {}
        for place, config in enumerate(order, 1):
            run = self._run(config, seed, after + self.seconds_of(order[place:]))
            if run.value is None:
                self._note_failure(config, run.failure)
            else:
                done[config] = run
        return done

    def pair(self, first: Config, second: Config, *, after: float = 0.0) -> float | None:
        """The gain of the second over the first; None where one failed, or where one was disturbed and one was not.

        A pair of the latter kind is in `unlike` then.
        """
        said, tries = "One run of the pair is disturbed and the other is not", 0
        while (runs := self._both(first, second, after)) is not None:
            one, other = runs
            if alike(one.disturbed, other.disturbed):
                return self._gain(one, other)
            tries += 1
            if tries > 1 or not self.repeats.may_take(one.seconds + other.seconds, self.left - after):
                self.tell(Said(f"{said}: they are compared only if many runs stay disturbed."))
                self.unlike.append((first, second, self._gain(one, other)))
                return None
            self.tell(Said(f"{said}: both are measured again."))
        return None

    def _both(self, first: Config, second: Config, after: float) -> tuple[Run, Run] | None:
        if first != second:
            done = self.block([first, second], after=after)
            return (done[first], done[second]) if len(done) == 2 else None
        self.blocks += 1
        seed = random.Random(f"{self._seed}/{self.blocks}").getrandbits(53)
        one = self._run(first, seed, after + self.run_seconds)
        other = self._run(first, seed, after)
        return (one, other) if one.value is not None and other.value is not None else None

    def gain(self, first: Run, second: Run) -> float | None:
        """The logarithm by which the second is better; None where the two cannot be compared."""
        comparable = self.is_restless or alike(first.disturbed, second.disturbed)
        return self._gain(first, second) if comparable else None

    @property
    def is_restless(self) -> bool:
        """Whether so many runs stay disturbed that this is the machine's noise, and all runs must be compared."""
        return bool(self.runs) and sum(bool(kept.run.disturbed) for kept in self.runs) >= RESTLESS * len(self.runs)

    def _gain(self, first: Run, second: Run) -> float:
        assert first.value is not None
        assert second.value is not None
        return self._sign * math.log(second.value / first.value)

    def _run(self, config: Config, seed: int, after: float) -> Run:
        """The run that counts; measurements that were disturbed come before it, as far as they were made again."""
        instead_of: list[int] = []
        while True:
            run = self._measured(config, seed, instead_of)
            fate = self.repeats.judge(
                self.measured,
                config,
                run.disturbed,
                seconds=run.seconds,
                tries=len(instead_of) + 1,
                left=self.left - after,
            )
            if fate is not None:
                self.tell(Said(sentence(self.repeats.log[-1])))
            if fate != "again":
                break
            instead_of.append(self.measured)
        self.runs.append(Kept(self.blocks, config, run))
        return run

    def _measured(self, config: Config, seed: int, instead_of: Sequence[int]) -> Run:
        """One measurement, from the journal or made now and written there, disturbed or not."""
        self.measured += 1
        number, settings = self.measured, settings_of(self._baseline, config)
        again = self._journal.known > 0
        limit = self._limit()
        if not again:
            self.tell(Trying(number, config))
        ask = {"number": number, "block": self.blocks, "settings": settings, "seed": seed}
        answer = self._journal.step(
            "run",
            ask | ({"instead_of": instead_of[-1]} if instead_of else {}),
            lambda: msgspec.to_builtins(self._try(config, settings, number, seed, limit)),
        )
        run = msgspec.convert(answer, Run)
        self.spent += run.seconds
        self.tell(Tried(number, config, run, self.spent, again))
        return run

    def _try(self, config: Config, settings: Settings, number: int, seed: int, limit: float | None) -> Run:
        run = self._measure(settings, number=number, seed=seed, limit=limit)
        if run.value is None and config == BASELINE:
            run = self._measure(settings, number=number, seed=seed, limit=limit)
            if run.value is None:  # not written down, so that --resume can try it again
                raise Unavailable(f"The baseline does not run, so nothing can be compared to it: {run.failure}")
        return run

    def _limit(self) -> float | None:
        seen = [kept.run.seconds for kept in self.runs if kept.config == BASELINE and kept.run.value is not None]
        return max(_TIMES_BASELINE * statistics.median(seen), _LEAST_LIMIT) if seen else None

    def unlike_blocks(self) -> int:
        """Blocks in which not all runs could be compared."""
        if self.is_restless:
            return 0
        kinds: dict[int, set[frozenset[str]]] = {}
        for kept in self.runs:
            kinds.setdefault(kept.block, set()).add(frozenset(one.kind for one in kept.run.disturbed))
        return sum(len(seen) > 1 for seen in kinds.values())

    # --- failures ---

    def _note_failure(self, config: Config, failure: str) -> None:
        self.failed.setdefault(config, failure)
        self.tell(Said(f"Failed: {named(config)}: {failure}"))

    def find_culprits(self, config: Config) -> None:
        """Runs each arm of a failed config by itself, unless it has run in another one."""
        seen = {arm for kept in self.runs if kept.run.value is not None for arm in kept.config}
        for arm in in_order(config):
            alone = frozenset({arm})
            if arm not in seen and alone not in self.failed and len(config) > 1:
                self.block([alone])

    def without_failures(self, config: Config) -> Config:
        """The config with as few arms taken off as keep it clear of what failed."""
        for broken in self.failed:
            if broken <= config:
                return self.without_failures(config - {in_order(broken)[-1]})
        return config

    def failed_arms(self, arms: Sequence[Arm]) -> dict[Arm, str]:
        """Arms that fail by themselves, with the reason."""
        return {arm: self.failed[frozenset({arm})] for arm in arms if frozenset({arm}) in self.failed}

    # --- quality ---

    def quality(self, config: Config) -> Quality:
        """Of the config's answers against the baseline's."""
        settings = settings_of(self._baseline, config)
        answer = self._journal.step(
            "quality",
            {"settings": settings},
            lambda: msgspec.to_builtins(self._judge(dict(self._baseline), settings)),
        )
        found = msgspec.convert(answer, Quality)
        self.spent += found.seconds
        return found
