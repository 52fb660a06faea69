"""Looks at a server again and again, and keeps the last seconds of what it saw."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from firsttoken.doctor.live.diagnosis import Diagnosis, diagnose
from firsttoken.doctor.live.dialects import read_metrics
from firsttoken.doctor.live.reading import Reading, Restarted, window
from firsttoken.doctor.live.sensed import Sensed
from firsttoken.doctor.live.work import Bounds


class Sensors(Protocol):
    """Of what computes: a card's, or a host's."""

    def read(self) -> Any: ...

    def mean(self, readings: Sequence[Any]) -> Sensed | None:
        """Of what `read` gave, at least once."""


class Watch:
    """`seconds`: how far back a diagnosis looks. `fetch` gives the text of /metrics and raises as `Served.metrics`."""

    def __init__(
        self,
        fetch: Callable[[], str],
        bounds: Bounds,
        sensors: Sensors | None = None,
        *,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._bounds = bounds
        self._sensors = sensors
        self._seconds = seconds
        self._clock = clock
        self._seen: deque[tuple[Reading, Any]] = deque()

    def look(self) -> Diagnosis | None:
        """One more reading, and what the last seconds say; None where it is the first, or the first after a restart."""
        before = self._clock()
        text = self._fetch()
        at = (before + self._clock()) / 2  # the server made it in between
        self._seen.append((read_metrics(text, at), None if self._sensors is None else self._sensors.read()))
        while len(self._seen) > 2 and self._seen[1][0].at <= at - self._seconds:
            self._seen.popleft()
        if len(self._seen) < 2:
            return None
        try:
            lately = window([reading for reading, _ in self._seen])
        except Restarted:
            self._seen = deque([self._seen[-1]])
            return None
        sensed = None if self._sensors is None else self._sensors.mean([reading for _, reading in self._seen])
        return diagnose(lately, self._bounds, sensed)
