"""An H200 behind NVML's names: plays samples that were recorded on a real one, and takes settings as a card does."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.machine.nvml_double import NVMLError, RecordedNvml

SAMPLES: dict[str, Any] = json.loads(Path(__file__).with_name("h200_samples.json").read_text())
_REASONS = {"software power cap": 0x4, "hardware slowdown": 0x8, "hardware thermal slowdown": 0x40, "power brake": 0x80}


class H200(RecordedNvml):
    """An H200 as one was recorded on 2026-12-01, driver 580.159.04.

    Sensors play `samples`, which `firsttoken bench run` took. How the card is set up (limits, link, ECC, clocks,
    slowdown, address, memory in use) is what `firsttoken doctor --json` read of it idle;
    tests/doctor/h200_readings.json has that whole, also beside a server. Only the list of clocks that
    may be locked was not recorded.

    `absent` names whole NVML functions that fail. Every change is kept in `changes`, in order.
    """

    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0

    def __init__(self, samples: str = "busy", cards: int = 1, absent: set[str] | None = None, **setup: Any) -> None:
        super().__init__(cards=cards)
        self.samples: list[dict[str, Any]] = SAMPLES[samples]
        self.played = 0
        self.missing = absent or set()
        self.changes: list[tuple[str, int, Any]] = []
        self.state: list[dict[str, Any]] = [
            {
                "persistence": 1,
                "limit": 700_000,
                "default": 700_000,
                "span": (200_000, 700_000),
                "link": (5, 16),
                "link_max": (5, 16),
                "link_card": 5,
                "ecc": (1, 1),
                "errors": 0,
                "remapped": (0, 0, 0, 0),
                "mig": (0, 0),
                "mode": 0,
                "processes": [],
                "used": 644_939_776,
                "lock": None,
                "reason": None,
            }
            | setup
            for _ in range(cards)
        ]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "missing"):

            def refuse(*_: Any) -> None:
                raise NVMLError("Not Supported")

            return refuse
        return object.__getattribute__(self, name)

    # sensors, from the recording

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        self.played += 1  # the first question of a reading
        return SimpleNamespace(gpu=self._now["gpu_percent"], memory=self._now["memory_percent"])

    @property
    def _now(self) -> dict[str, Any]:
        return self.samples[max(self.played - 1, 0) % len(self.samples)]

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        watts: float = self._now["power_w"]
        return round(watts * 1000)

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        if kind == self.NVML_CLOCK_MEM:
            return int(self.state[handle].get("memory_clock", self._now["memory_clock_mhz"]))
        clock = int(self.state[handle].get("sm_clock", self._now["sm_clock_mhz"]))
        lock = self.state[handle]["lock"]
        return clock if lock is None else min(clock, lock[1])

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return int(self.state[handle].get("temperature", self._now["temperature_c"]))

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        planted = self.state[handle]["reason"]
        reasons: list[str] = self._now["held_back"] if planted is None else [planted]
        return sum(_REASONS[text] for text in reasons)

    # how the card is set up

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13000

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-0000-{handle}"

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:00:0{handle + 6}.0")

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return tuple(self.state[handle].get("capability", (9, 0)))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=150_754_820_096, used=self.state[handle]["used"])

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        return 1980 if kind == self.NVML_CLOCK_SM else 3201

    def nvmlDeviceGetSupportedGraphicsClocks(self, handle: int, memory_clock: int) -> list[int]:
        assert memory_clock == 3201
        return list(range(1980, 344, -15))

    def nvmlDeviceGetTemperatureThreshold(self, handle: int, kind: int) -> int:
        return 89

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: int) -> int:
        return int(self.state[handle]["link"][0])

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:
        return int(self.state[handle]["link"][1])

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:
        return int(self.state[handle]["link_max"][0])

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:
        return int(self.state[handle]["link_max"][1])

    def nvmlDeviceGetGpuMaxPcieLinkGeneration(self, handle: int) -> int:
        return int(self.state[handle]["link_card"])

    def nvmlDeviceGetEccMode(self, handle: int) -> tuple[int, int]:
        return tuple(self.state[handle]["ecc"])

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, since: int) -> int:
        return int(self.state[handle]["errors"])

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:
        return tuple(self.state[handle]["remapped"])

    def nvmlDeviceGetMigMode(self, handle: int) -> tuple[int, int]:
        return tuple(self.state[handle]["mig"])

    def nvmlDeviceGetComputeMode(self, handle: int) -> int:
        return int(self.state[handle]["mode"])

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in self.state[handle]["processes"]]

    # settings

    def nvmlDeviceGetPersistenceMode(self, handle: int) -> int:
        return int(self.state[handle]["persistence"])

    def nvmlDeviceSetPersistenceMode(self, handle: int, mode: int) -> None:
        self._set("persistence", handle, mode)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return int(self.state[handle]["limit"])

    def nvmlDeviceGetPowerManagementLimit(self, handle: int) -> int:
        return int(self.state[handle]["limit"])

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: int) -> int:
        return int(self.state[handle]["default"])

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: int) -> tuple[int, int]:
        return tuple(self.state[handle]["span"])

    def nvmlDeviceSetPowerManagementLimit(self, handle: int, milliwatts: int) -> None:
        self._set("limit", handle, milliwatts)

    def nvmlDeviceSetGpuLockedClocks(self, handle: int, low: int, high: int) -> None:
        self._set("lock", handle, (low, high))

    def nvmlDeviceResetGpuLockedClocks(self, handle: int) -> None:
        self._set("lock", handle, None)

    def _set(self, name: str, handle: int, value: Any) -> None:
        self.changes.append((name, handle, value))
        self.state[handle][name] = value
