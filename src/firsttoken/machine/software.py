"""What is installed: torch, the CUDA that it was built with, Triton, and what kernels are built with; imports none."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from firsttoken.machine.launch_tables import measured_cards


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Versions; None where a package is not installed."""

    python: str
    torch: str | None
    torch_cuda: str | None  # "13.0"; None for a build for CPUs
    triton: str | None
    no_launchers: str | None  # why Triton could not build what starts its kernels, None where it can
    c_compiler: str | None  # its path
    measured_cards: Mapping[str, Sequence[str]]  # that have measured kernel launches, and others with their chips


def read_software(
    why_no_launchers: Callable[[], str | None],
    find_compiler: Callable[[], str | None],
    search: Sequence[str | Path] | None = None,
) -> Software:
    """Reads versions from the packages' files. `search` is where torch's folder may be, by default Python's path."""
    return Software(
        python=platform.python_version(),
        torch=_version("torch"),
        torch_cuda=_torch_cuda(search),
        triton=_version("triton"),
        no_launchers=why_no_launchers(),
        c_compiler=find_compiler(),
        measured_cards=measured_cards(),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _torch_cuda(search: Sequence[str | Path] | None) -> str | None:
    """From torch/version.py as text: importing torch takes seconds."""
    if search is None:
        spec = find_spec("torch")
        search = [Path(folder).parent for folder in (spec.submodule_search_locations or [])] if spec else []
    for folder in search:
        try:
            text = Path(folder, "torch", "version.py").read_text()
        except OSError:
            continue
        if match := re.search(r"^cuda[^=\n]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE):
            return match[1]
    return None
