"""Sensors of what a server on this machine computes with: its card, or the cores of this host."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

from firsttoken.bench.sources import is_local
from firsttoken.doctor.live.sensed import Sensed, sensed_of_card
from firsttoken.machine.gpu_sensors import GpuReading, GpuSensors, open_sensors


class LocalCard:
    """One card of `sensors`."""

    def __init__(self, sensors: GpuSensors, index: int) -> None:
        self._sensors = sensors
        self._index = index
        self._limits = sensors.limits(index)

    def read(self) -> GpuReading:
        return self._sensors.read(self._index)

    def mean(self, readings: Sequence[GpuReading]) -> Sensed:
        return sensed_of_card(readings, self._limits)


class LocalCores:
    """How many threads want the cores of this host, all programs together."""

    def __init__(self, loadavg: Path = Path("/proc/loadavg"), cores: int | None = None) -> None:
        self._loadavg = loadavg
        self._cores = cores or os.cpu_count() or 1

    def read(self) -> float | None:
        """Threads for each core at this moment, without the one that asks."""
        try:
            runnable = int(self._loadavg.read_text().split()[3].split("/")[0])
        except (OSError, ValueError, IndexError):
            return None
        return max(0, runnable - 1) / self._cores

    def mean(self, readings: Sequence[float | None]) -> Sensed | None:
        known = [reading for reading in readings if reading is not None]
        return Sensed(runnable_per_core=fmean(known)) if known else None


@contextmanager
def local_sensors(
    url: str, device: str, open_all: Callable[[], GpuSensors | str] = open_sensors
) -> Iterator[LocalCard | LocalCores | None]:
    """Of `device` as the server calls it ("cpu", "cuda:1"), else of the first card; None elsewhere and without NVML."""
    if not is_local(url):
        yield None
        return
    if device == "cpu":
        yield LocalCores()
        return
    sensors = open_all()
    if isinstance(sensors, str):
        yield None
        return
    number = re.fullmatch(r"cuda:(\d+)", device)
    try:
        yield LocalCard(sensors, min(int(number[1]) if number else 0, sensors.count - 1))
    finally:
        sensors.close()
