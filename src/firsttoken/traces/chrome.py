"""Reads torch's trace: Chrome's JSON, packed or not."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from firsttoken.traces.trace import MARK, Event, Span, Trace, of_one_device, steps_among

_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
_PACKED = b"\x1f\x8b"


class _Arguments(msgspec.Struct):
    correlation: int | None = None
    device: int | None = None


class _Raw(msgspec.Struct):
    """One entry of a Chrome trace, as far as it matters."""

    name: str = ""
    ph: str = ""
    cat: str = ""
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Device(msgspec.Struct):
    name: str = ""


class _File(msgspec.Struct):
    traceEvents: list[_Raw]
    deviceProperties: list[_Device] = msgspec.field(default_factory=list)


def read_chrome(path: Path, marks: Sequence[str] = (MARK,)) -> Trace:
    """`marks` as of `steps_among`. Raises OSError, EOFError, or msgspec.DecodeError for what is no trace."""
    content = path.read_bytes()
    file = msgspec.json.decode(gzip.decompress(content) if content.startswith(_PACKED) else content, type=_File)
    name = file.deviceProperties[0].name if file.deviceProperties else ""
    return _trace((raw for raw in file.traceEvents if raw.ph == "X"), marks, name)


def _trace(entries: Iterable[_Raw], marks: Sequence[str], device_name: str) -> Trace:
    spans: list[Span] = []
    launches: dict[int, float] = {}  # by correlation id: all kernels of a CUDA graph have that of its launch
    device: list[tuple[_Raw, _Arguments]] = []
    host: list[_Raw] = []
    for raw in entries:
        if raw.cat in _ON_DEVICE:
            device.append((raw, _arguments(raw)))
        elif raw.cat in _LAUNCHES:
            if (correlation := _arguments(raw).correlation) is not None:
                launches[correlation] = raw.ts
        elif raw.cat == "cpu_op":
            host.append(raw)
        elif raw.cat == "user_annotation":
            spans.append(Span(raw.ts, raw.ts + raw.dur, raw.name))
    steps = steps_among(spans, marks)
    if not device:
        ran = sorted((Event(raw.ts, raw.ts + raw.dur, raw.name) for raw in _outermost(host)), key=lambda e: e.start)
        return Trace(steps, ran, on_gpu=False)
    events, devices = of_one_device(
        [
            Event(
                raw.ts,
                raw.ts + raw.dur,
                raw.name,
                launches.get(-1 if args.correlation is None else args.correlation),
                args.device or 0,
            )
            for raw, args in device
        ]
    )
    return Trace(steps, events, True, device_name, devices)


def _arguments(raw: _Raw) -> _Arguments:
    """Read only where they matter: other entries' may have any form."""
    return msgspec.json.decode(raw.args, type=_Arguments)


def _outermost(ops: list[_Raw]) -> Iterable[_Raw]:
    """Those that no other op of the same thread has called."""
    ends: dict[int | str, float] = {}
    for op in sorted(ops, key=lambda op: (op.ts, -op.dur)):
        if op.ts >= ends.get(op.tid, 0.0):
            ends[op.tid] = op.ts + op.dur
            yield op
