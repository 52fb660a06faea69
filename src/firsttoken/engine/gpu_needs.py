"""What a GPU needs besides itself: a torch built for it, a driver new enough, and what Triton builds launchers with."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from firsttoken.machine.driver import DRIVER_OF_CUDA
from firsttoken.machine.gpu import Gpu


def why_no_cuda(gpus: Sequence[Gpu], torch_version: str, cuda_version: str | None) -> str | None:
    """Why torch cannot use the machine's GPUs, in a sentence that says what to install; None without a GPU to use.

    `cuda_version` is torch's own ("13.0"), None for a build without CUDA. To be asked where torch sees no GPU.
    """
    if not gpus:
        return None
    gpu = gpus[0]
    if cuda_version is None:
        return (
            f"This machine has an {gpu.name}, but torch {torch_version} is a build for CPUs; install one with CUDA "
            "(pip install --force-reinstall torch), or run on the CPU with --device cpu."
        )
    needed = DRIVER_OF_CUDA.get(int(cuda_version.split(".")[0]))
    driver = gpu.driver.split(".")[0]
    if needed is not None and driver.isdigit() and int(driver) < needed:
        return (
            f"The {gpu.name}'s driver {gpu.driver} is too old for torch {torch_version}, whose CUDA {cuda_version} "
            f"needs {needed} or newer; update the driver, or run on the CPU with --device cpu."
        )
    return (
        f"torch {torch_version} cannot use the {gpu.name}; see what `python -c 'import torch; torch.cuda.init()'` "
        "says, or run on the CPU with --device cpu."
    )


def why_no_launchers(
    environ: Mapping[str, str] = os.environ,
    which: Callable[[str], str | None] = shutil.which,
    include: Path | None = None,
) -> str | None:
    """Why Triton could not build the small C programs that launch its kernels; None where it can."""
    include = include or Path(sysconfig.get_paths()["include"])
    compilers = [environ["CC"]] if environ.get("CC") else ["clang", "gcc", "cc"]
    missing = []
    if not any(which(name) for name in compilers):
        missing.append("a C compiler")
    if not (include / "Python.h").is_file():
        missing.append("Python's header files")
    if not missing:
        return None
    python = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
    return (
        f"The GPU kernels need {' and '.join(missing)} to start; install gcc and {python} (their names on Debian and "
        "Ubuntu), or run on the CPU with --device cpu."
    )
