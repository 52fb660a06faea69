"""What a trace comes to, a step. Pure: events in, figures out."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from firsttoken.traces.op_names import op_name
from firsttoken.traces.trace import Trace

LONG_GAP = 20.0  # microseconds
_PAUSE = 50_000.0  # without marked steps: nobody makes a device wait so long who has work for it


@dataclass(slots=True)
class OpTime:
    """Microseconds and calls of one op, all steps together.

    `own` leaves out what ran beside something that had begun earlier; the ops' own times make up the busy time.
    """

    name: str
    total: float = 0.0
    own: float = 0.0
    calls: int = 0


@dataclass(slots=True)
class Gap:
    """Times in which nothing ran between the same two ops, all steps together."""

    after: str
    before: str
    between_steps: bool
    total: float = 0.0
    times: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """All times in microseconds over `steps` whole steps."""

    steps: int
    on_gpu: bool
    walls: list[float]  # of each step, from where it begins to where the next one does
    busy: float  # something ran: the union of what may have overlapped
    ops: list[OpTime]  # most own time first
    gaps: list[Gap]  # longest first
    long_gaps: int  # longer than LONG_GAP
    long_gap_time: float
    paused: float = 0.0  # left out of the walls: without marked steps, times in which there was nothing to do

    @property
    def wall(self) -> float:
        return sum(self.walls)

    @property
    def idle_between_steps(self) -> float:
        return sum(gap.total for gap in self.gaps if gap.between_steps)

    @property
    def idle_within_steps(self) -> float:
        return sum(gap.total for gap in self.gaps if not gap.between_steps)


def summarise(trace: Trace) -> Summary | None:
    """None without two marked steps that did something.

    A step lasts from the first thing that the device did for it to the first thing of the next one, so the last marked
    step only ends the one before. Where launches are not known, the host's spans stand for that.
    """
    step_of, bounds = _steps(trace)
    if len(bounds) < 2:
        return None
    return _fold(trace, step_of, bounds, pause=float("inf"))


def summarise_whole(trace: Trace) -> Summary | None:
    """The trace as one step, for those that mark none; None where nothing ran."""
    if not trace.events:
        return None
    bounds = [trace.events[0].start, max(event.end for event in trace.events)]
    return _fold(trace, [0] * len(trace.events), bounds, _PAUSE)


def _fold(trace: Trace, step_of: list[int], bounds: list[float], pause: float) -> Summary:
    """Gaps from `pause` on are not counted as gaps."""
    first, last = bounds[0], bounds[-1]
    ops: dict[str, OpTime] = {}
    gaps = _Gaps()
    paused = 0.0
    covered, name_before, step_before = first, "", -1
    for event, step in zip(trace.events, step_of, strict=True):
        start, end = max(event.start, first), min(event.end, last)
        if event.end <= first or start > last:
            continue
        name = op_name(event.name)
        if start - covered >= pause:
            paused += start - covered
        elif start > covered:
            gaps.add(name_before, name, step != step_before, start - covered)
        if end > start:
            op = ops.setdefault(name, OpTime(name))
            op.calls += 1
            op.total += end - start
            op.own += max(0.0, end - max(start, covered))
        if event.end >= covered:
            covered, name_before = event.end, name
        step_before = step
    if last > covered:
        gaps.add(name_before, "the end", True, last - covered)
    return Summary(
        steps=len(bounds) - 1,
        on_gpu=trace.on_gpu,
        walls=[end - start for start, end in pairwise(bounds)] if not paused else [last - first - paused],
        busy=sum(op.own for op in ops.values()),
        ops=sorted(ops.values(), key=lambda op: -op.own),
        gaps=sorted(gaps.found.values(), key=lambda gap: -gap.total),
        long_gaps=gaps.long,
        long_gap_time=gaps.long_time,
        paused=paused,
    )


class _Gaps:
    def __init__(self) -> None:
        self.found: dict[tuple[str, str, bool], Gap] = {}
        self.long = 0
        self.long_time = 0.0

    def add(self, after: str, before: str, between_steps: bool, time: float) -> None:
        gap = self.found.setdefault((after, before, between_steps), Gap(after, before, between_steps))
        gap.total += time
        gap.times += 1
        if time > LONG_GAP:
            self.long += 1
            self.long_time += time


def _steps(trace: Trace) -> tuple[list[int], list[float]]:
    """Which marked step each event belongs to, -1 before them all, and where each step begins."""
    begins = [start for start, _ in trace.steps]
    if not any(event.launched is not None for event in trace.events):
        return [bisect_right(begins, event.start) - 1 for event in trace.events], begins
    step_of: list[int] = []
    bounds: dict[int, float] = {}
    step = -1
    for event in trace.events:
        if event.launched is not None:  # else the launch was before the recording
            step = bisect_right(begins, event.launched) - 1
        step_of.append(step)
        if step >= 0:
            bounds.setdefault(step, event.start)
    return step_of, list(bounds.values())
