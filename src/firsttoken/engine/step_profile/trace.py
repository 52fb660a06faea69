"""What a recorded trace says: when each marked step ran and what the device did. Reads torch's Chrome trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

MARK = "firsttoken step"  # of the host's span of one step; its number follows

_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})


@dataclass(frozen=True, slots=True)
class Event:
    """Something that ran, in microseconds of the trace's clock."""

    start: float
    end: float
    name: str
    launched: float | None = None  # when the host queued it, where it ran on a GPU


@dataclass(frozen=True, slots=True)
class Trace:
    """The marked steps as the host saw them, (start, end) in order, and what ran in them, by start."""

    steps: list[tuple[float, float]]
    events: list[Event]
    on_gpu: bool  # kernels and copies of a GPU; else torch's outermost ops on the host


class _Arguments(msgspec.Struct):
    correlation: int | None = None


class _Raw(msgspec.Struct):
    """One entry of a Chrome trace, as far as it matters."""

    name: str = ""
    ph: str = ""
    cat: str = ""
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: _Arguments = msgspec.field(default_factory=_Arguments)


class _File(msgspec.Struct):
    traceEvents: list[_Raw]


def read_trace(path: Path) -> Trace:
    """Raises OSError, or msgspec.DecodeError for what is no trace."""
    return _trace([raw for raw in msgspec.json.decode(path.read_bytes(), type=_File).traceEvents if raw.ph == "X"])


def _trace(entries: Iterable[_Raw]) -> Trace:
    steps: list[tuple[float, float]] = []
    launches: dict[int, float] = {}  # by correlation id: all kernels of a CUDA graph have that of its launch
    device: list[_Raw] = []
    host: list[_Raw] = []
    for raw in entries:
        if raw.cat in _ON_DEVICE:
            device.append(raw)
        elif raw.cat in _LAUNCHES and raw.args.correlation is not None:
            launches[raw.args.correlation] = raw.ts
        elif raw.cat == "cpu_op":
            host.append(raw)
        elif raw.cat == "user_annotation" and raw.name.startswith(MARK):
            steps.append((raw.ts, raw.ts + raw.dur))
    steps.sort()
    if device:
        events = [Event(raw.ts, raw.ts + raw.dur, raw.name, launches.get(raw.args.correlation or -1)) for raw in device]
    else:
        events = [Event(raw.ts, raw.ts + raw.dur, raw.name) for raw in _outermost(host)]
    events.sort(key=lambda event: event.start)
    return Trace(steps, events, on_gpu=bool(device))


def _outermost(ops: list[_Raw]) -> Iterable[_Raw]:
    """Those that no other op of the same thread has called."""
    ends: dict[int | str, float] = {}
    for op in sorted(ops, key=lambda op: (op.ts, -op.dur)):
        if op.ts >= ends.get(op.tid, 0.0):
            ends[op.tid] = op.ts + op.dur
            yield op
