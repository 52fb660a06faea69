"""Is there a working NVIDIA driver, and does it serve the CUDA that torch was built with?"""

from __future__ import annotations

from firsttoken.doctor.finding import Finding
from firsttoken.doctor.quantities import count
from firsttoken.machine.driver import DRIVER_OF_CUDA, Driver
from firsttoken.machine.software import Software
from firsttoken.machine.system import System

_AREA = "driver"
_OPEN_DRIVERS = {"nouveau": "nouveau", "nova_core": "nova"}


def check_driver(driver: Driver, software: Software, system: System) -> list[Finding]:
    """The module, its library, and torch on top of them."""
    found = [check_modules(driver)]
    if driver.version is not None or driver.on_bus or "nvidia" in driver.modules or system.device_files:
        found += [check_library(driver, system), check_cuda(driver, software)]
    return found


def check_modules(driver: Driver) -> Finding:
    """Which driver holds the card."""
    why = "CUDA needs NVIDIA's own kernel module; a card that another driver holds cannot be used."
    other = next((module for module in _OPEN_DRIVERS if module in driver.modules), None)
    if other is not None:
        return Finding(
            _AREA,
            "kernel module",
            "bad",
            f"{_OPEN_DRIVERS[other]} is loaded",
            why,
            f"Install NVIDIA's driver, write `blacklist {other}` into a file in /etc/modprobe.d, run "
            "`sudo update-initramfs -u` and restart the machine.",
        )
    if driver.version is not None or "nvidia" in driver.modules:
        return Finding(_AREA, "kernel module", "ok", "nvidia", why)
    if driver.on_bus:
        return Finding(
            _AREA,
            "kernel module",
            "bad",
            f"none is loaded, with {count(len(driver.on_bus), 'NVIDIA card')} on the bus",
            why,
            "Install NVIDIA's driver, 580 or newer, and restart the machine; where it is installed, `sudo modprobe "
            "nvidia` says why it does not load (a kernel without its headers, or Secure Boot, most often).",
        )
    return Finding(_AREA, "kernel module", "unread", "no NVIDIA card on the bus, and no module", why)


def check_library(driver: Driver, system: System) -> Finding:
    """Whether the driver's library answers."""
    why = "Every reading of a card, and CUDA itself, go through the driver's library, which must match the module."
    if driver.version is not None:
        return Finding(_AREA, "library", "ok", f"{driver.version}, serves CUDA up to {driver.cuda or '?'}", why)
    trouble = driver.trouble or "no answer"
    if "mismatch" in trouble.lower():
        fix = (
            f"The driver was updated under the running module ({driver.module_version or 'older'}): restart the machine"
            ", or stop all GPU programs and run `sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia` and "
            "`sudo modprobe nvidia`."
        )
    elif "nvidia-ml-py" in trouble:
        fix = "Run `pip install nvidia-ml-py`."
    elif system.container is not None:
        fix = (
            "Start the container with the card: `docker run --gpus all …`, with NVIDIA's container toolkit on the host."
        )
    else:
        fix = "Run `nvidia-smi`; if it fails as well, install NVIDIA's driver again and restart the machine."
    return Finding(_AREA, "library", "bad", trouble, why, fix)


def check_cuda(driver: Driver, software: Software) -> Finding:
    """The driver against the CUDA that torch was built with."""
    why = "A driver serves every CUDA up to its own; torch brings its CUDA along and needs no toolkit on the machine."
    if software.torch is None:
        return Finding(_AREA, "torch's CUDA", "bad", "torch is not installed", why, "Run `pip install firsttoken`.")
    if software.torch_cuda is None:
        fix = "Run `pip install --force-reinstall torch` without an index of CPU builds."
        return Finding(_AREA, "torch's CUDA", "bad", f"torch {software.torch} is a build for CPUs", why, fix)
    reading = f"torch {software.torch} has CUDA {software.torch_cuda}"
    needed = DRIVER_OF_CUDA.get(int(software.torch_cuda.split(".")[0]))
    if driver.version is None or needed is None:
        return Finding(_AREA, "torch's CUDA", "unread", f"{reading}; the driver's version is not known", why)
    if int(driver.version.split(".")[0]) < needed:
        fix = f"Install driver {needed} or newer, or a torch built with an older CUDA."
        return Finding(_AREA, "torch's CUDA", "bad", f"{reading}, which needs driver {needed} or newer", why, fix)
    return Finding(_AREA, "torch's CUDA", "ok", f"{reading}, which driver {driver.version} serves", why)
