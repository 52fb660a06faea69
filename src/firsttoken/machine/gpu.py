"""Which NVIDIA GPUs this machine has, as its driver says: no torch, no CUDA context, nothing kept open."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Runner = Callable[[Sequence[str]], str]
"""Runs a command and returns its output. Raises OSError or subprocess.SubprocessError where it cannot."""

_FIELDS = ("name", "memory.total", "memory.free", "driver_version")
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU."""

    index: int  # as the driver counts, from 0
    name: str
    memory_total: int  # bytes
    memory_free: int  # bytes at the time of the reading
    driver: str  # "580.95.05"


def run_command(command: Sequence[str]) -> str:
    """The command's standard output. Raises OSError or subprocess.SubprocessError; waits 10 s at most."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout


def read_gpus(run: Runner = run_command, environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """Every NVIDIA GPU in the driver's order; empty without one, without a driver, or where the driver is broken.

    Also empty where CUDA_VISIBLE_DEVICES hides them all, as its users mean it.
    """
    if environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return []
    try:
        output = run(["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"])
    except (OSError, subprocess.SubprocessError):
        return []
    gpus: list[Gpu] = []
    for index, line in enumerate(output.strip().splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(_FIELDS):
            continue
        name, total, free, driver = cells
        gpus.append(
            Gpu(index=index, name=name, memory_total=_mebibytes(total), memory_free=_mebibytes(free), driver=driver)
        )
    return gpus


def _mebibytes(cell: str) -> int:
    """Bytes; 0 where the driver does not say ("[N/A]" on machines with one memory for CPU and GPU)."""
    try:
        return int(cell) * _MIB
    except ValueError:
        return 0
