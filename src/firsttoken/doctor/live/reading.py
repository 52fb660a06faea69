"""One look at a server's metrics, in terms that all engines share, and what lies between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Literal

EngineKind = Literal["firsttoken", "vllm", "sglang"]


class Restarted(Exception):
    """A counter went back: the server between the two readings is not the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counted since the server's start. None: this server does not count it."""

    generated: float | None = None  # tokens
    prompt: float | None = None  # prompt tokens, those found in the cache too
    looked_up: float | None = None  # prompt tokens that the prefix cache was asked for
    found: float | None = None  # and had
    preempted: float | None = None
    steps: float | None = None
    gap_seconds: float | None = None  # between a sequence's tokens, all sequences together
    gaps: float | None = None
    first_seconds: float | None = None  # to first tokens
    firsts: float | None = None
    queue_seconds: float | None = None
    queued: float | None = None  # requests that the queue's time is of
    read_bytes: float | None = None  # the server's own estimate, of one GPU
    flops: float | None = None
    busy_seconds: float | None = None  # in which the engine had work
    wait_seconds: float | None = None  # of these, in which its host code waited for the device
    device_seconds: float | None = None  # in which the device ran a step
    graph_steps: float | None = None  # decode steps that were one CUDA graph
    eager_steps: float | None = None  # decode steps launched kernel by kernel

    def since(self, earlier: Totals) -> Totals:
        """What was added. Raises Restarted."""
        added: dict[str, float] = {}
        for one in fields(self):
            now, before = getattr(self, one.name), getattr(earlier, one.name)
            if now is None:
                continue
            added[one.name] = now - (before or 0.0)  # a series may begin with its first event
            if added[one.name] < 0:
                raise Restarted
        return Totals(**added)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """At one moment; `at` is in seconds of this host's monotonic clock."""

    at: float
    engine: EngineKind
    running: float  # sequences
    waiting: float
    kv_usage: float | None = None  # 0 to 1: blocks that running sequences hold
    kv_tokens: float | None = None  # that the pool has room for
    kv_in_8_bits: bool = False
    totals: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time between the first and the last of some readings: means of what was read, sums of what was counted."""

    engine: EngineKind
    seconds: float
    running: float
    waiting: float
    had_work: float  # share of the readings with a request in them
    kv_usage: float | None
    kv_tokens: float | None
    kv_in_8_bits: bool
    added: Totals

    @property
    def active(self) -> float:
        """Share of the time in which the engine had work: its own count, else the most that gaps and readings show."""
        if self.added.busy_seconds is not None:
            return min(1.0, self.added.busy_seconds / self.seconds)
        return min(1.0, max(self.had_work, self.decoding))

    @property
    def busy_seconds(self) -> float:
        return self.active * self.seconds

    @property
    def decoding(self) -> float:
        """Sequences that got token after token, on average over the window: seconds between tokens per second."""
        return (self.added.gap_seconds or 0.0) / self.seconds

    @property
    def streams(self) -> float:
        """Sequences that a step ran, on average over the busy time."""
        return max(1.0, max(self.decoding, self.running) / self.active) if self.active else 0.0

    @property
    def tpot(self) -> float | None:
        """Mean seconds between a sequence's tokens."""
        return _ratio(self.added.gap_seconds, self.added.gaps)

    @property
    def ttft(self) -> float | None:
        return _ratio(self.added.first_seconds, self.added.firsts)

    @property
    def queue_time(self) -> float | None:
        return _ratio(self.added.queue_seconds, self.added.queued)

    @property
    def hit_rate(self) -> float | None:
        """Share of the prompt tokens looked up that the prefix cache had."""
        return _ratio(self.added.found, self.added.looked_up)

    @property
    def computed(self) -> float:
        """Prompt tokens that were not found in the cache."""
        if self.added.looked_up:
            return max(0.0, self.added.looked_up - (self.added.found or 0.0))
        return self.added.prompt or 0.0

    @property
    def steps(self) -> float | None:
        """Counted, or as many as fit at the time between a sequence's tokens, or one a prompt."""
        if self.added.steps:
            return self.added.steps
        return self.busy_seconds / self.tpot if self.tpot else self.added.firsts or None

    @property
    def step_seconds(self) -> float | None:
        return _ratio(self.busy_seconds, self.steps)

    @property
    def tokens_per_step(self) -> float | None:
        return _ratio(self.computed + (self.added.generated or 0.0), self.steps)

    @property
    def context(self) -> float:
        """Tokens of context that the running sequences hold together."""
        return (self.kv_usage or 0.0) * (self.kv_tokens or 0.0)

    @property
    def waited(self) -> float | None:
        """Share of the busy time in which the host's code waited for the device."""
        share = _ratio(self.added.wait_seconds, self.added.busy_seconds)
        return None if share is None else min(1.0, share)  # the latest step's wait may be counted before its time is

    @property
    def device_busy(self) -> float | None:
        """Share of the busy time in which the device ran a step, where the server times it."""
        seconds = self.added.device_seconds
        return None if not seconds or not self.busy_seconds else min(1.0, seconds / self.busy_seconds)

    @property
    def eager(self) -> float | None:
        """Share of the decode steps that were launched kernel by kernel."""
        eager, graph = self.added.eager_steps, self.added.graph_steps
        return None if eager is None and graph is None else _ratio(eager or 0.0, (eager or 0.0) + (graph or 0.0))


def window(readings: Sequence[Reading]) -> Window:
    """Of two readings or more, in order. Raises Restarted."""
    first, last = readings[0], readings[-1]
    assert last.at > first.at, "a window has two ends"
    if first.engine != last.engine:
        raise Restarted
    usages = [reading.kv_usage for reading in readings if reading.kv_usage is not None]
    return Window(
        engine=last.engine,
        seconds=last.at - first.at,
        running=fmean(reading.running for reading in readings),
        waiting=fmean(reading.waiting for reading in readings),
        had_work=fmean(reading.running + reading.waiting > 0 for reading in readings),
        kv_usage=fmean(usages) if usages else None,
        kv_tokens=last.kv_tokens,
        kv_in_8_bits=last.kv_in_8_bits,
        added=last.totals.since(first.totals),
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
