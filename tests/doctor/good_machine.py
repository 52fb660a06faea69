"""A machine with one H200 where all is well, to plant single faults in."""

from __future__ import annotations

from typing import Any

from firsttoken.doctor.readings import CardReadings, Readings
from firsttoken.machine.card_state import read_cards
from firsttoken.machine.card_under_load import watch
from firsttoken.machine.disk import Disk
from firsttoken.machine.driver import Driver
from firsttoken.machine.memory import Memory
from firsttoken.machine.processor import Processor
from firsttoken.machine.software import Software
from firsttoken.machine.system import System
from tests.machine.h200_double import H200
from tests.machine.short_load import ShortLoad

GIB = 1024**3

DRIVER = Driver(
    version="580.159.04",
    cuda="13.0",
    trouble=None,
    modules=("nvidia", "nvidia_uvm"),
    module_version="580.159.04",
    on_bus=("0000:00:06.0",),
)
SOFTWARE = Software(
    python="3.12.3",
    torch="2.11.0+cu130",
    torch_cuda="13.0",
    triton="3.6.0",
    no_launchers=None,
    c_compiler="/usr/bin/gcc",
    measured_cards={"NVIDIA H200": ["NVIDIA H100"]},
)
PROCESSOR = Processor(
    name="Intel(R) Xeon(R) Processor",
    instructions=("avx2", "fma", "avx512f"),
    logical=16,
    allowed=tuple(range(16)),
    cores=16,
    throttled_share=None,
    governors={"performance": 16},
    scaling_driver="intel_pstate",
    preferences={"performance": 16},
    waiting_percent=0.5,
)
MEMORY = Memory(
    total=125 * GIB,
    available=100 * GIB,
    swap_total=0,
    swap_used=0,
    waiting_percent=0.0,
    killed=0,
    huge_pages="madvise",
    nodes={0: tuple(range(16))},
)
DISK = Disk("/models", "ext4", 500 * GIB, 3.1e9, "/models/model.safetensors", None)
SYSTEM = System(
    kernel="6.18.44",
    container=None,
    virtual=True,
    files_soft=1024,
    files_hard=1_048_576,
    shared_memory=8 * GIB,
    ports_taken={},
    device_files=("/dev/nvidia0", "/dev/nvidiactl"),
)


def card(samples: str = "busy", **setup: Any) -> CardReadings:
    """An H200 read at rest and under a load that plays recorded samples; `setup` plants a fault."""
    nvml = H200(samples, **setup)
    [state] = read_cards(nvml)
    loaded = watch(nvml, 0, ShortLoad(10), lambda seconds: None)
    return CardReadings(state=state, under_load=loaded, why_no_load=None)


def machine(**other: Any) -> Readings:
    """All is well, except for what is given."""
    parts: dict[str, Any] = {
        "taken": "2026-12-01T12:00:00+00:00",
        "driver": DRIVER,
        "cards": (card(),),
        "software": SOFTWARE,
        "processor": PROCESSOR,
        "memory": MEMORY,
        "disk": DISK,
        "system": SYSTEM,
        "environment": {},
    }
    return Readings(**(parts | other))
