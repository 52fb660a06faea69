"""What a monitor reads: cards through NVML, host and processes through psutil."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from firsttoken.bench.monitor import Monitor, Source
from firsttoken.bench.records import Sample
from firsttoken.bench.server_process import has_listener, root_of_port
from firsttoken.bench.workers import allowed_cores
from firsttoken.machine.gpu_sensors import GpuSensors, open_sensors

_LOOK_FOR_CHILDREN = 1.0  # seconds; a scan of every process of the host


class GpuSource:
    """Every card, or those of `indices`, as "gpu0", "gpu1", ..., and who works on it, as "user:gpu0:<pid>"."""

    def __init__(self, sensors: GpuSensors, indices: Sequence[int] | None = None) -> None:
        self._sensors = sensors
        self._indices = [i for i in range(sensors.count) if indices is None or i in indices]

    def read(self, at: float) -> list[Sample]:
        samples: list[Sample] = []
        for index in self._indices:
            reading = self._sensors.read(index)
            named = {
                "gpu_percent": reading.busy_percent,
                "memory_percent": reading.memory_busy_percent,
                "memory_used_bytes": reading.memory_used,
                "power_w": reading.power_w,
                "energy_j": reading.energy_j,
                "sm_clock_mhz": reading.sm_clock_mhz,
                "memory_clock_mhz": reading.memory_clock_mhz,
                "temperature_c": reading.temperature_c,
            }
            values = {name: float(value) for name, value in named.items() if value is not None}
            samples.append(Sample(at=at, source=f"gpu{index}", values=values, states=list(reading.held_back)))
            for pid, share in self._sensors.work(index).items():
                samples.append(Sample(at=at, source=f"user:gpu{index}:{pid}", values={"sm_percent": share}))
        return samples

    def absent(self) -> list[str]:
        return [
            f"gpu{index}: this card has no sensor for {', '.join(missing)}."
            for index in self._indices
            if (missing := self._sensors.missing(index))
        ]


class HostSource:
    """All cores together, 100 % meaning that every one is busy, and memory in use.

    Also how many cores' worth were busy of the `cores` that this process, and so what it launches, may run on.
    """

    def __init__(self, psutil: Any) -> None:
        self._psutil = psutil
        self._before: list[tuple[float, float]] = []

    def read(self, at: float) -> list[Sample]:
        now = [_spent(times) for times in self._psutil.cpu_times(percpu=True)]
        values = {"memory_used_bytes": float(self._psutil.virtual_memory().used)}
        if len(now) == len(self._before):
            passed = [(t1 - t0, i1 - i0) for (t1, i1), (t0, i0) in zip(now, self._before, strict=True)]
            ours = [passed[core] for core in allowed_cores() if core < len(passed)] or passed
            if (busy := _busy(passed)) is not None and (busy_of_ours := _busy(ours)) is not None:
                values |= {"cpu_percent": 100 * busy, "busy_cores": busy_of_ours * len(ours), "cores": float(len(ours))}
        self._before = now
        return [Sample(at=at, source="host", values=values)]

    def absent(self) -> list[str]:
        return []


def _spent(times: Any) -> tuple[float, float]:
    """Seconds of a core since it was started: all, and those in which it had nothing to do."""
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # counted in user
    return total, times.idle + getattr(times, "iowait", 0.0)


def _busy(passed: Sequence[tuple[float, float]]) -> float | None:
    """The share of the time that has passed over these cores; None where the clock has not moved."""
    total = sum(seconds for seconds, _ in passed)
    return 1 - sum(idle for _, idle in passed) / total if total > 0 else None


class ProcessSource:
    """A process and all that came from it, as "process:<role>/<name>:<pid>"; 100 % is one core."""

    def __init__(self, psutil: Any, role: str, pid: int, without: int | None = None) -> None:
        """`without` is a process whose own tree belongs to another role: a server that the client launched."""
        self._psutil, self._role, self._root, self._without = psutil, role, pid, without
        self._processes: list[tuple[str, Any]] = []
        self._scanned = float("-inf")
        self._before: dict[int, tuple[float, float]] = {}  # pid -> time and seconds of CPU used until then

    def read(self, at: float) -> list[Sample]:
        if at - self._scanned >= _LOOK_FOR_CHILDREN:
            self._scan(at)
        samples: list[Sample] = []
        for label, process in self._processes:
            with suppress(self._psutil.Error), process.oneshot():
                times, pid = process.cpu_times(), process.pid
                values = {"rss_bytes": float(process.memory_info().rss)}
                used, before = times.user + times.system, self._before.get(pid)
                if before is not None and at > before[0]:
                    values["cpu_percent"] = 100 * max(used - before[1], 0.0) / (at - before[0])
                self._before[pid] = at, used
                samples.append(Sample(at=at, source=f"process:{label}:{pid}", values=values))
        return samples

    def absent(self) -> list[str]:
        return []

    def _scan(self, at: float) -> None:
        self._scanned = at
        self._processes = []
        with suppress(self._psutil.Error):
            root = self._psutil.Process(self._root)
            other = set()
            if self._without is not None:
                with suppress(self._psutil.Error):
                    apart = self._psutil.Process(self._without)
                    other = {self._without, *(child.pid for child in apart.children(recursive=True))}
            for process in [root, *root.children(recursive=True)]:
                if process.pid not in other:
                    with suppress(self._psutil.Error):
                        self._processes.append((f"{self._role}/{process.name().replace(':', '-')}", process))


class Absent:
    """Stands where a source could not be opened and says why."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, at: float) -> list[Sample]:
        return []

    def absent(self) -> list[str]:
        return [self._text]


def monitor_for(
    url: str,
    gpus: Sequence[int] | None = None,
    *,
    sensors: Callable[[], GpuSensors | str] = open_sensors,
    import_module: Callable[[str], Any] = importlib.import_module,
) -> Monitor:
    """A monitor of the server at `url` and of this client; a server on another machine is left alone and said so."""
    return Monitor(lambda pid: _open(url, gpus, pid, sensors, import_module))


def is_local(url: str) -> bool:
    """Whether a URL's host is this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "0.0.0.0", "::1", "::", socket.gethostname()) or host.startswith("127.")


def _open(
    url: str,
    gpus: Sequence[int] | None,
    server_pid: int | None,
    sensors: Callable[[], GpuSensors | str],
    import_module: Callable[[str], Any],
) -> list[Source]:
    sources: list[Source] = []
    local = is_local(url)
    if local:
        found = sensors()
        sources.append(Absent(found) if isinstance(found, str) else GpuSource(found, gpus))
    else:
        sources.append(Absent("GPU, host and processes of the server: not read, because it is on another machine."))
    try:
        psutil = import_module("psutil")
    except ImportError:
        return [
            *sources,
            Absent("Host and processes: not read, because psutil is not installed (pip install 'firsttoken[bench]')."),
        ]
    server = server_pid
    if local:
        sources.append(HostSource(psutil))
        port = urlsplit(url).port or 80
        server = server_pid if server_pid is not None else root_of_port(psutil, port)
        if server is None:
            sources.append(Absent(f"Server's processes: not read, because nobody seen here listens on port {port}."))
        elif not has_listener(psutil, server, port):
            # A container's client, say: what it uses is not the server's, and what the server uses would be others'.
            sources.append(Absent("Server's processes: not read, because the launched command does not listen itself."))
        else:
            sources.append(ProcessSource(psutil, "server", server))
    sources.append(ProcessSource(psutil, "client", os.getpid(), without=server))
    return sources
