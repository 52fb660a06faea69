"""Reads what `nsys export --type sqlite` writes of an Nsight Systems report."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from firsttoken.traces.trace import MARK, WHOLE_GRAPH, Event, Span, Trace, of_one_device, steps_among

# Times are nanoseconds. Tables are only there where something was recorded for them, and their columns grow from
# version to version; these have been there since 2021.
_KERNELS = """
SELECT k.start, k.end, k.correlationId, k.deviceId, coalesce(s.value, '')
FROM CUPTI_ACTIVITY_KIND_KERNEL AS k LEFT JOIN StringIds AS s ON s.id = k.demangledName
"""
_COPIES = "SELECT start, end, correlationId, deviceId, 'Memcpy' FROM CUPTI_ACTIVITY_KIND_MEMCPY"
_FILLS = "SELECT start, end, correlationId, deviceId, 'Memset' FROM CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS = f"SELECT start, end, correlationId, deviceId, '{WHOLE_GRAPH}' FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_LAUNCHES = "SELECT correlationId, start FROM CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGES = """
SELECT n.start, n.end, coalesce(n.text, s.value, '')
FROM NVTX_EVENTS AS n LEFT JOIN StringIds AS s ON s.id = n.textId WHERE n.end IS NOT NULL
"""
_GPU = "SELECT name FROM TARGET_INFO_GPU LIMIT 1"


def read_nsight(path: Path, marks: Sequence[str] = (MARK,)) -> Trace:
    """`marks` as of `steps_among`, over NVTX ranges. Raises sqlite3.DatabaseError for what is no such file.

    A trace without kernels has no events.
    """
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

        def rows(query: str, *needs: str) -> Iterator[tuple[Any, ...]]:
            return iter(file.execute(query)) if tables >= set(needs) else iter(())

        launches: dict[int, float] = dict(rows(_LAUNCHES, "CUPTI_ACTIVITY_KIND_RUNTIME"))
        found = [
            Event(start / 1e3, end / 1e3, name, _micro(launches.get(correlation)), device)
            for query, *needs in (
                (_KERNELS, "CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"),
                (_COPIES, "CUPTI_ACTIVITY_KIND_MEMCPY"),
                (_FILLS, "CUPTI_ACTIVITY_KIND_MEMSET"),
                (_GRAPHS, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"),
            )
            for start, end, correlation, device, name in rows(query, *needs)
        ]
        spans = [Span(start / 1e3, end / 1e3, name) for start, end, name in rows(_RANGES, "NVTX_EVENTS", "StringIds")]
        names = [name for (name,) in rows(_GPU, "TARGET_INFO_GPU")]
    events, devices = of_one_device(found)
    return Trace(steps_among(spans, marks), events, True, names[0] if names else "", devices)


def _micro(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e3
