"""What a recorded trace says: when each marked step ran and what the device did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

MARK = "firsttoken step"  # of the host's span of one step; its number follows

STEP_MARKS = (MARK, "ProfilerStep#", "execute_")
"""How the names of spans begin that each hold a step: ours, torch's own schedule's, vLLM's."""

WHOLE_GRAPH = "CUDA graph, recorded as a whole"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that ran, in microseconds of the trace's clock."""

    start: float
    end: float
    name: str
    launched: float | None = None  # when the host queued it, where it ran on a GPU
    device: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """The marked steps as the host saw them, (start, end) in order, and what ran in them, by start."""

    steps: list[tuple[float, float]]
    events: list[Event]
    on_gpu: bool  # kernels and copies of a GPU; else torch's outermost ops on the host
    device_name: str = ""  # "" where the trace does not tell
    devices: int = 1  # that worked; the events are those of the busiest


@dataclass(frozen=True, slots=True)
class Span:
    """A named time on the host, in microseconds."""

    start: float
    end: float
    name: str


def steps_among(spans: Sequence[Span], marks: Sequence[str]) -> list[tuple[float, float]]:
    """The spans whose names begin with the first of `marks` that any does, in order."""
    for mark in marks:
        found = sorted((span.start, span.end) for span in spans if span.name.startswith(mark))
        if found:
            return found
    return []


def of_one_device(events: Sequence[Event]) -> tuple[list[Event], int]:
    """The events of the device that worked the longest, by start, and how many devices worked."""
    worked: dict[int, float] = defaultdict(float)
    for event in events:
        worked[event.device] += event.end - event.start
    busiest = max(worked, key=lambda device: worked[device], default=0)
    return sorted((e for e in events if e.device == busiest), key=lambda event: event.start), max(1, len(worked))
