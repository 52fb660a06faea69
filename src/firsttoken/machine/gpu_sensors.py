"""A GPU's sensors through NVML (the package nvidia-ml-py): cheap enough to read while something is measured."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any

_HELD_BACK = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""NVML's reasons for which clocks are below what was asked for. Idle and settings made on purpose are none."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One moment of one card. What the card or its driver does not tell is None."""

    busy_percent: float | None  # of the last sampling period in which any kernel ran: not how full the card was
    memory_busy_percent: float | None  # of the same period in which memory was read or written
    memory_used: int | None  # bytes, of all processes
    power_w: float | None
    energy_j: float | None  # since the driver was loaded
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    temperature_c: float | None
    held_back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """What one card's readings are held against. What the card or its driver does not tell is None."""

    max_sm_clock_mhz: float | None = None
    power_limit_w: float | None = None  # as it is set
    power_default_w: float | None = None


class GpuSensors:
    """The sensors of every card, or of one. `nvml` is the module pynvml or a stand-in for it."""

    def __init__(self, nvml: Any, now: Callable[[], float] = time.time) -> None:
        """Raises the module's NVMLError where there is no driver. `now`: the clock of NVML's own samples."""
        self._nvml, self._now = nvml, now
        self._worked: dict[int, int] = {}  # microseconds until which a card's work has been told
        nvml.nvmlInit()
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        self._silent: set[tuple[int, str]] = set()  # sensors that refused once: each refusal costs time again

    @property
    def count(self) -> int:
        return len(self._handles)

    def missing(self, index: int) -> list[str]:
        """Sensors that this card was asked for and does not have."""
        return sorted(name for card, name in self._silent if card == index)

    def limits(self, index: int) -> GpuLimits:
        """Never raises."""
        nvml, handle = self._nvml, self._handles[index]

        def ask(call: Callable[[], int], unit: float = 1.0) -> float | None:
            try:
                return call() * unit
            except nvml.NVMLError:
                return None

        return GpuLimits(
            max_sm_clock_mhz=ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
            power_limit_w=ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle), 1e-3),
            power_default_w=ask(lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle), 1e-3),
        )

    def read(self, index: int) -> GpuReading:
        """Never raises: a card that fell off the bus has no readings."""
        nvml, handle = self._nvml, self._handles[index]

        def ask(name: str, call: Callable[[], Any]) -> Any:
            if (index, name) in self._silent:
                return None
            try:
                return call()
            except nvml.NVMLError:
                self._silent.add((index, name))
                return None

        rates = ask("utilisation", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        milliwatts = ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        millijoules = ask("energy", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        sm = ask("SM clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        dram = ask("memory clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))
        heat = ask("temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        bits = ask("clock limits", lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        return GpuReading(
            busy_percent=None if rates is None else float(rates.gpu),
            memory_busy_percent=None if rates is None else float(rates.memory),
            memory_used=None if memory is None else int(memory.used),
            power_w=None if milliwatts is None else milliwatts / 1e3,
            energy_j=None if millijoules is None else millijoules / 1e3,
            sm_clock_mhz=None if sm is None else float(sm),
            memory_clock_mhz=None if dram is None else float(dram),
            temperature_c=None if heat is None else float(heat),
            held_back=tuple(text for bit, text in _HELD_BACK.items() if bits and bits & bit),
        )

    def users(self, index: int) -> set[int]:
        """Processes that hold the card, as the driver counts, which in a container is another way. Never raises."""
        nvml, handle = self._nvml, self._handles[index]
        found: set[int] = set()
        for call in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
            with suppress(nvml.NVMLError):
                found |= {int(process.pid) for process in call(handle)}
        return found

    def work(self, index: int) -> dict[int, float]:
        """Per cent of the card's multiprocessors that each process kept busy since the last call, by its number.

        Empty where nobody worked, where the card does not tell, and at the first call. Never raises.
        """
        nvml, since, now = self._nvml, self._worked.get(index), int(self._now() * 1e6)
        self._worked[index] = now
        if since is None or (index, "work of processes") in self._silent:
            return {}
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(self._handles[index], since)
        except nvml.NVMLError as error:
            if getattr(error, "value", None) != nvml.NVML_ERROR_NOT_FOUND:  # which says that nobody worked
                self._silent.add((index, "work of processes"))
            return {}
        shares: dict[int, list[float]] = {}
        for sample in samples:
            if sample.timeStamp > since:
                shares.setdefault(int(sample.pid), []).append(float(sample.smUtil))
        return {pid: fmean(seen) for pid, seen in shares.items()}

    def close(self) -> None:
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()


def open_sensors() -> GpuSensors | str:
    """This machine's sensors, or one sentence that says why there are none."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return "GPU: not read, because nvidia-ml-py is not installed (pip install nvidia-ml-py)."
    try:
        sensors = GpuSensors(nvml)
    except nvml.NVMLError as error:
        return f"GPU: none that the NVIDIA driver knows ({error})."
    if sensors.count:
        return sensors
    sensors.close()
    return "GPU: the NVIDIA driver knows none."
