"""Settings of a card, through NVML. Nothing here resets a card."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
FREE = "driver's choice"  # of a clock that is not locked
_STEP = 30  # MHz: cards round a clock to one of their own steps
_ROOT_ONLY = "only root may change a card's settings"


class CardKnob(ABC):
    """What the three settings share. `nvml` is the started module pynvml or a stand-in."""

    kind = ""
    unit = ""

    def __init__(self, nvml: Any, index: int, is_root: bool) -> None:
        """Raises OSError where the card cannot be opened."""
        self._nvml, self._index, self._is_root = nvml, index, is_root
        self._handle = self._ask(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
        uuid = self._ask(lambda: nvml.nvmlDeviceGetUUID(self._handle))
        self.target = uuid.decode() if isinstance(uuid, bytes) else str(uuid)

    @property
    def label(self) -> str:
        return f"card {self._index}: {self.kind}"

    def why_no_rights(self) -> str | None:
        return None if self._is_root else _ROOT_ONLY

    @abstractmethod
    def read(self) -> str | None:
        """As `Knob`."""

    def problem(self, value: str) -> str | None:
        now = self.read()
        return None if now == value else f"it reads {now}{self.unit} afterwards"

    def _ask(self, call: Callable[[], _T]) -> _T:
        """NVML's own error as an OSError, which callers know."""
        try:
            return call()
        except self._nvml.NVMLError as error:
            raise OSError(str(error)) from None


class Persistence(CardKnob):
    """Whether the driver keeps the card when nobody uses it: "on" or "off"."""

    kind = "persistence"

    def read(self) -> str:
        return "on" if self._ask(lambda: self._nvml.nvmlDeviceGetPersistenceMode(self._handle)) else "off"

    def why_not(self, value: str) -> str | None:
        return None if value in ("on", "off") else f"{value!r} is neither on nor off"

    def write(self, value: str) -> None:
        self._ask(lambda: self._nvml.nvmlDeviceSetPersistenceMode(self._handle, int(value == "on")))


class PowerLimit(CardKnob):
    """The most that the card may draw: whole watts."""

    kind = "power limit"
    unit = " W"

    def read(self) -> str:
        return _watts(self._ask(lambda: self._nvml.nvmlDeviceGetPowerManagementLimit(self._handle)))

    def default(self) -> str:
        """The card's own limit."""
        return _watts(self._ask(lambda: self._nvml.nvmlDeviceGetPowerManagementDefaultLimit(self._handle)))

    def why_not(self, value: str) -> str | None:
        least, most = self._ask(lambda: self._nvml.nvmlDeviceGetPowerManagementLimitConstraints(self._handle))
        if not value.isdigit() or not least <= int(value) * 1000 <= most:
            span = f"{_watts(least)} to {_watts(most)}"
            return f"{value!r} is not a whole number of watts from {span}, the card's own range"
        return None

    def write(self, value: str) -> None:
        self._ask(lambda: self._nvml.nvmlDeviceSetPowerManagementLimit(self._handle, int(value) * 1000))


class ClockLock(CardKnob):
    """The SM clock's lock: "1200-1980" in MHz, or the driver's choice. NVML sets a lock and has no way to read one."""

    kind = "clock lock"
    unit = " MHz"

    def read(self) -> None:
        return None

    def why_not(self, value: str) -> str | None:
        if value == FREE:
            return None
        low, _, high = value.partition("-")
        if not (low.isdigit() and high.isdigit()) or int(low) > int(high):
            return f"{value!r} is not a clock or a span of clocks in MHz"
        least, most = self._span()
        if int(low) < least or int(high) > most:
            return f"{value} MHz is not within the card's {least} to {most} MHz"
        return None

    def write(self, value: str) -> None:
        if value == FREE:
            self._ask(lambda: self._nvml.nvmlDeviceResetGpuLockedClocks(self._handle))
        else:
            low, _, high = value.partition("-")
            self._ask(lambda: self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle, int(low), int(high)))

    def problem(self, value: str) -> str | None:
        """A clock above the lock is one. One below is none: a card at rest, or held back, may be there."""
        if value == FREE:
            return None
        now = self._ask(lambda: self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))
        return None if now <= int(value.partition("-")[2]) + _STEP else f"the clock reads {now} MHz afterwards"

    def _span(self) -> tuple[int, int]:
        """The lowest and the highest SM clock at the card's highest memory clock."""
        nvml, handle = self._nvml, self._handle
        memory = self._ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM))
        clocks = self._ask(lambda: nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory))
        return min(clocks), max(clocks)


def _watts(milliwatts: int) -> str:
    return str(round(milliwatts / 1000))
