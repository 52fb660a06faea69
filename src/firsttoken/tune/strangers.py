"""Who uses the cards beside the server that is measured: processes that were there before it, or stay after it.

The driver counts processes in its own way, so that in a container a server's own number on a card is not known. But it
is neither there before its launch nor after its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from firsttoken.machine.gpu_sensors import GpuSensors, open_sensors

_LINGER = 1.0  # seconds in which the driver may still list a process that has ended


class Strangers:
    """Looks before a launch and after its end."""

    def __init__(
        self, sensors: Callable[[], GpuSensors | str] = open_sensors, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._open, self._sleep = sensors, sleep
        self._before: frozenset[str] = frozenset()

    def look(self) -> None:
        """Before a server is launched."""
        self._before = self._users()

    def found(self) -> frozenset[str]:
        """After it has ended: everybody else who was seen, as "gpu0:<pid>"."""
        after = self._users()
        if after - self._before:
            self._sleep(_LINGER)
            after = self._users()
        return self._before | after

    def _users(self) -> frozenset[str]:
        sensors = self._open()
        if isinstance(sensors, str):
            return frozenset()
        found = frozenset(f"gpu{card}:{pid}" for card in range(sensors.count) for pid in sensors.users(card))
        sensors.close()
        return found
