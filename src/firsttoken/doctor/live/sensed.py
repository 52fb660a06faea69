"""What the card's own sensors said while a server was watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from firsttoken.machine.gpu_sensors import GpuLimits, GpuReading

_POWER = "software power cap"
_OFTEN = 0.5  # of the readings
_CROWDED = 2.5  # threads for each core: the server's own are one for each, and its client's
_LOWERED = 0.95  # of the default limit of power
_SLOWED = 0.75  # of the highest clock: an H200 under a full load at its default limit keeps four fifths


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensed:
    """Means over a window; what the card does not tell is None."""

    kernels: float | None = None  # share of the time in which any kernel ran: says nothing about how full the card was
    sm_clock_mhz: float | None = None
    limits: GpuLimits = field(default_factory=GpuLimits)
    power_w: float | None = None
    temperature_c: float | None = None
    held_back: dict[str, float] = field(default_factory=dict)  # share of the readings by reason
    runnable_per_core: float | None = None  # of a host whose cores do the computing: threads that want one

    @property
    def throttled(self) -> str | None:
        """Why it is held back for most of the time.

        At its own limit of power a card under load is what it is; a cap counts where that limit was lowered, or where
        it takes more of the clocks than a full load does.
        """
        if self.runnable_per_core is not None and self.runnable_per_core >= _CROWDED:
            return "other programs"
        faults = [reason for reason, share in self.held_back.items() if share >= _OFTEN and reason != _POWER]
        if faults:
            return faults[0]
        capped = self.held_back.get(_POWER, 0.0) >= _OFTEN
        limit, default = self.limits.power_limit_w, self.limits.power_default_w
        lowered = limit is not None and default is not None and limit < _LOWERED * default
        slow = self.clock_share is not None and self.clock_share < _SLOWED
        return _POWER if capped and (lowered or slow) else None

    @property
    def clock_share(self) -> float | None:
        highest = self.limits.max_sm_clock_mhz
        return None if self.sm_clock_mhz is None or not highest else self.sm_clock_mhz / highest


def sensed_of_card(readings: Sequence[GpuReading], limits: GpuLimits) -> Sensed:
    """`readings` has one at least."""
    reasons = {reason for reading in readings for reason in reading.held_back}
    busy = _mean([reading.busy_percent for reading in readings])
    return Sensed(
        kernels=None if busy is None else busy / 100,
        sm_clock_mhz=_mean([reading.sm_clock_mhz for reading in readings]),
        limits=limits,
        power_w=_mean([reading.power_w for reading in readings]),
        temperature_c=_mean([reading.temperature_c for reading in readings]),
        held_back={reason: fmean(reason in reading.held_back for reading in readings) for reason in sorted(reasons)},
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
