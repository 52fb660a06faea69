"""A recorded NVML: answers with what an H200 under load said, fails where a card has no such sensor."""

from __future__ import annotations

from types import SimpleNamespace


class NVMLError(Exception):
    """The module's own error type."""

    def __init__(self, text: str, value: int = 3) -> None:
        super().__init__(text)
        self.value = value


class RecordedNvml:
    """Stands in for the module pynvml; every name is NVML's own."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0
    NVML_ERROR_NOT_FOUND = 6

    def __init__(self, cards: int = 1, absent: set[str] | None = None, reasons: int = 0, driver: bool = True) -> None:
        self.cards, self.absent, self.reasons, self.driver = cards, absent or set(), reasons, driver
        self.millijoules = 1_000_000
        self.calls: list[str] = []
        self.open = 0
        self.users: dict[int, int] = {}  # of each card: per cent of its multiprocessors by process

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return self.cards

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        self._ask("utilisation")
        return SimpleNamespace(gpu=98, memory=71)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        self._ask("memory")
        return SimpleNamespace(total=150754820096, used=8_600_000_000 + handle, free=142_000_000_000)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._ask("power")
        return 412_350

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        self._ask("energy")
        self.millijoules += 100_000
        return self.millijoules

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        self._ask("SM clock" if kind == self.NVML_CLOCK_SM else "memory clock")
        return 1980 if kind == self.NVML_CLOCK_SM else 3201

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        self._ask("temperature")
        return 41

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        self._ask("clock limits")
        return self.reasons

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        self._ask("processes")
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in self.users]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        raise NVMLError("Not Supported")

    def nvmlDeviceGetProcessUtilization(self, handle: int, since: int) -> list[SimpleNamespace]:
        self._ask("work of processes")
        if not self.users:
            raise NVMLError("Not Found", self.NVML_ERROR_NOT_FOUND)
        times = (since, since + 10)  # the driver's samples overlap what was asked for
        return [
            SimpleNamespace(pid=pid, smUtil=share, timeStamp=at) for pid, share in self.users.items() for at in times
        ]

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        self._ask("power limit")
        return 700_000

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: int) -> int:
        self._ask("power limit")
        return 700_000

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        self._ask("SM clock")
        return 1980

    def _ask(self, name: str) -> None:
        self.calls.append(name)
        if name in self.absent:
            raise NVMLError("Not Supported")
