"""An sqlite export as Nsight Systems writes it: its tables and columns, of the 2024 versions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

_SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, busLocation TEXT, isDiscrete INTEGER,
    totalMemory INTEGER, smCount INTEGER, memoryBandwidth INTEGER, computeMajor INTEGER, computeMinor INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
    callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
    category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
    domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
    int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT);
"""
_KERNELS = """
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
    globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
    launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,
    gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
    blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,
    localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,
    sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
"""
_COPIES = """
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
    globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER,
    dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER,
    migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER, copyCount INTEGER);
"""
_GRAPHS = """
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
    globalPid INTEGER, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL);
"""


@dataclass
class NsightFile:
    """Events in microseconds; tables are only made for what there is, as the exporter does."""

    kernels: list[tuple[float, float, str, int, int]] = field(default_factory=list)  # start, end, name, launch, device
    copies: list[tuple[float, float, int]] = field(default_factory=list)  # start, end, launch
    graphs: list[tuple[float, float, int]] = field(default_factory=list)
    launches: list[tuple[float, int]] = field(default_factory=list)  # when, its correlation id
    ranges: list[tuple[float, float, str]] = field(default_factory=list)
    gpu: str = "NVIDIA H200"

    def write(self, path: Path) -> Path:
        names: dict[str, int] = {}

        def string(text: str) -> int:
            return names.setdefault(text, len(names) + 1)

        def ns(*times: float) -> tuple[int, ...]:
            return tuple(round(time * 1000) for time in times)

        with closing(sqlite3.connect(path)) as file:
            file.executescript(_SCHEMA)
            file.execute("INSERT INTO TARGET_INFO_GPU (id, name) VALUES (0, ?)", (self.gpu,))
            if self.kernels:
                file.executescript(_KERNELS)
            for start, end, name, launch, device in self.kernels:
                row = (*ns(start, end), device, 1, None, 7, launch, 1 << 40, string(name), string(name.split("<")[0]))
                file.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({_marks(28)})", row + (0,) * 18)
            if self.copies:
                file.executescript(_COPIES)
            for start, end, launch in self.copies:
                row = (*ns(start, end), 0, 1, None, 7, launch, 1 << 40, 4096, 1)
                file.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({_marks(21)})", row + (0,) * 11)
            if self.graphs:
                file.executescript(_GRAPHS)
            for start, end, launch in self.graphs:
                row = (*ns(start, end), 0, 1, None, 7, launch, 1 << 40, 3, 4)
                file.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES ({_marks(10)})", row)
            for start, correlation in self.launches:
                called = (*ns(start, start + 3), 0, 1, correlation, string("cudaLaunchKernel_v7000"), 0, None)
                file.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({_marks(8)})", called)
            for i, (start, end, name) in enumerate(self.ranges):
                text, text_id = (name, None) if i % 2 else (None, string(name))  # both ways of saying it occur
                file.execute(
                    "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId) VALUES (?, ?, 59, ?, ?)",
                    (*ns(start, end), text, text_id),
                )
            file.execute("INSERT INTO NVTX_EVENTS (start, end, eventType, text) VALUES (1, NULL, 34, 'a mark')")
            file.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, text) for text, number in names.items()])
            file.commit()
        return path


def _marks(count: int) -> str:
    return ", ".join("?" * count)
