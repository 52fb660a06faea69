"""How a card is set up and who uses it, as NVML says: one reading, nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from firsttoken.machine.kernel_files import program_name

_T = TypeVar("_T")
_COMPUTE_MODES = ("default", "exclusive thread", "prohibited", "exclusive process")


@dataclass(frozen=True, slots=True)
class CardProcess:
    """A process that has a context on the card."""

    pid: int  # as the driver counts: in a container not the number that is seen there
    name: str | None  # None where that process cannot be seen from here
    memory: int | None  # bytes, None where the driver does not tell


@dataclass(frozen=True, slots=True, kw_only=True)
class CardState:
    """One card at one moment. What the card, its driver or its virtual machine does not tell is None."""

    index: int  # as the driver counts
    uuid: str
    name: str
    bus: str | None = None  # PCI address, "0000:00:05.0"
    numa_node: int | None = None  # the node of the host's memory that the card is nearest to
    capability: tuple[int, int] | None = None
    memory_total: int | None = None  # bytes
    memory_used: int | None = None
    persistence: bool | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    power_least_w: float | None = None  # the least and the most that may be set
    power_most_w: float | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    slowdown_c: int | None = None  # where the card slows itself down
    link_generation_max: int | None = None  # of card and slot together
    link_width_max: int | None = None
    link_generation_card: int | None = None  # of the card alone
    ecc: bool | None = None
    ecc_pending: bool | None = None  # after the next restart
    uncorrected_errors: int | None = None  # since the driver was loaded
    rows_remapped: int | None = None  # for good, because of uncorrectable errors
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    mig: bool | None = None
    compute_mode: str | None = None
    processes: tuple[CardProcess, ...] | None = None


def read_cards(nvml: Any, root: Path = Path("/")) -> list[CardState]:
    """Every card in the driver's order. `nvml` is the started module pynvml or a stand-in.

    A card that cannot be opened is left out; a question that one does not answer is None.
    """
    found: list[CardState] = []
    for index in range(card_count(nvml)):
        with suppress(nvml.NVMLError):
            found.append(_read_card(nvml, index, nvml.nvmlDeviceGetHandleByIndex(index), root))
    return found


def card_count(nvml: Any) -> int:
    """How many cards the driver knows; 0 where it does not even tell that."""
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError:
        return 0


def read_link(nvml: Any, index: int) -> tuple[int, int] | None:
    """Generation and width of the card's PCIe link now; an idle link rests at a low generation."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        return nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle), nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)
    except nvml.NVMLError:
        return None


def _read_card(nvml: Any, index: int, handle: Any, root: Path) -> CardState:
    def ask(call: Callable[..., _T], *arguments: Any) -> _T | None:
        try:
            return call(handle, *arguments)
        except nvml.NVMLError:
            return None

    def watts(call: Callable[..., Any]) -> float | None:
        milliwatts = ask(call)
        return None if milliwatts is None else milliwatts / 1e3

    memory = ask(nvml.nvmlDeviceGetMemoryInfo)
    ecc = ask(nvml.nvmlDeviceGetEccMode)
    limits = ask(nvml.nvmlDeviceGetPowerManagementLimitConstraints)
    errors = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    remapped = ask(nvml.nvmlDeviceGetRemappedRows)
    mig = ask(nvml.nvmlDeviceGetMigMode)
    mode = ask(nvml.nvmlDeviceGetComputeMode)
    persistence = ask(nvml.nvmlDeviceGetPersistenceMode)
    bus = ask(nvml.nvmlDeviceGetPciInfo)
    address = None if bus is None else _text(bus.busId).lower()[-12:]  # NVML writes eight digits of domain
    return CardState(
        index=index,
        uuid=_text(ask(nvml.nvmlDeviceGetUUID) or ""),
        name=_text(ask(nvml.nvmlDeviceGetName) or "unnamed card"),
        bus=address,
        numa_node=_numa_node(root, address),
        capability=ask(nvml.nvmlDeviceGetCudaComputeCapability),
        memory_total=None if memory is None else int(memory.total),
        memory_used=None if memory is None else int(memory.used),
        persistence=None if persistence is None else bool(persistence),
        power_limit_w=watts(nvml.nvmlDeviceGetEnforcedPowerLimit),
        power_default_w=watts(nvml.nvmlDeviceGetPowerManagementDefaultLimit),
        power_least_w=None if limits is None else limits[0] / 1e3,
        power_most_w=None if limits is None else limits[1] / 1e3,
        sm_clock_max_mhz=ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
        memory_clock_max_mhz=ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
        slowdown_c=ask(nvml.nvmlDeviceGetTemperatureThreshold, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        link_generation_max=ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration),
        link_width_max=ask(nvml.nvmlDeviceGetMaxPcieLinkWidth),
        link_generation_card=ask(nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration),
        ecc=None if ecc is None else bool(ecc[0]),
        ecc_pending=None if ecc is None else bool(ecc[1]),
        uncorrected_errors=ask(nvml.nvmlDeviceGetTotalEccErrors, *errors),
        rows_remapped=None if remapped is None else int(remapped[1]),
        remap_pending=None if remapped is None else bool(remapped[2]),
        remap_failed=None if remapped is None else bool(remapped[3]),
        mig=None if mig is None else bool(mig[0]),
        compute_mode=None if mode is None or mode >= len(_COMPUTE_MODES) else _COMPUTE_MODES[mode],
        processes=_processes(ask(nvml.nvmlDeviceGetComputeRunningProcesses), root),
    )


def _processes(found: Any, root: Path) -> tuple[CardProcess, ...] | None:
    if found is None:
        return None
    return tuple(
        CardProcess(one.pid, program_name(root / f"proc/{one.pid}"), one.usedGpuMemory or None) for one in found
    )


def _numa_node(root: Path, address: str | None) -> int | None:
    """None where the host has one node only, which the kernel writes as -1."""
    try:
        node = int((root / f"sys/bus/pci/devices/{address}/numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
