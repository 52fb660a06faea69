"""The GPU driver of this machine: what is loaded, what is on the bus, and what the driver's library says."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttoken.machine.kernel_files import read_file

DRIVER_OF_CUDA = {12: 525, 13: 580}  # the oldest driver of each CUDA release line, as NVIDIA's release notes say

_MODULES = ("nvidia", "nvidia_uvm", "nouveau", "nova_core")
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # PCI vendor, and the class of anything that draws or computes


@dataclass(frozen=True, slots=True)
class Driver:
    """One reading. What the machine does not tell is None or empty."""

    version: str | None  # of the driver's library: "580.159.04"
    cuda: str | None  # the newest CUDA that it serves: "13.0"
    trouble: str | None  # why the driver's library cannot be asked, in its words
    modules: tuple[str, ...]  # of nvidia, nvidia_uvm, nouveau and nova_core, those that the kernel has loaded
    module_version: str | None  # of the loaded nvidia module
    on_bus: tuple[str, ...]  # PCI addresses of NVIDIA's cards


def open_nvml() -> Any:
    """The module pynvml, started; shut it down after use. Raises OSError, with its words, where it cannot be."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        raise OSError("the package nvidia-ml-py is not installed") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise OSError(str(error)) from None
    return nvml


def read_driver(nvml: Any | None, trouble: str | None = None, root: Path = Path("/")) -> Driver:
    """`nvml` is the started module pynvml or a stand-in, None where it could not be (`trouble` says why)."""
    version = cuda = None
    if nvml is not None:
        try:
            version = _text(nvml.nvmlSystemGetDriverVersion())
            number = nvml.nvmlSystemGetCudaDriverVersion_v2()
            cuda = f"{number // 1000}.{number % 1000 // 10}"
        except nvml.NVMLError as error:
            trouble = str(error)
    loaded = {line.split(" ", 1)[0] for line in (read_file(root / "proc/modules") or "").splitlines()}
    return Driver(
        version=version,
        cuda=cuda,
        trouble=trouble,
        modules=tuple(name for name in _MODULES if name in loaded),
        module_version=read_file(root / "sys/module/nvidia/version"),
        on_bus=tuple(_cards_on_bus(root / "sys/bus/pci/devices")),
    )


def _cards_on_bus(devices: Path) -> list[str]:
    return sorted(
        device.name
        for device in devices.glob("*")
        if read_file(device / "vendor") == _NVIDIA and (read_file(device / "class") or "").startswith(_DISPLAY)
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
