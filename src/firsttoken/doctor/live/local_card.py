"""The card that a server on this machine runs on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from firsttoken.bench.sources import is_local
from firsttoken.machine.gpu_sensors import GpuReading, GpuSensors, open_sensors


class LocalCard:
    """One card of `sensors`."""

    def __init__(self, sensors: GpuSensors, index: int) -> None:
        self._sensors = sensors
        self._index = index
        self.max_sm_clock_mhz = sensors.max_sm_clock_mhz(index)

    def read(self) -> GpuReading:
        return self._sensors.read(self._index)


@contextmanager
def local_card(
    url: str, device: str, open_all: Callable[[], GpuSensors | str] = open_sensors
) -> Iterator[LocalCard | None]:
    """The card that the server calls `device` ("cuda:1"), else the first; None elsewhere, on a CPU, without NVML."""
    sensors = open_all() if is_local(url) and device != "cpu" else "another machine, or no card"
    if isinstance(sensors, str):
        yield None
        return
    number = re.fullmatch(r"cuda:(\d+)", device)
    try:
        yield LocalCard(sensors, min(int(number[1]) if number else 0, sensors.count - 1))
    finally:
        sensors.close()
