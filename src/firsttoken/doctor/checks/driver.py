"""Is there a working NVIDIA driver, and does it serve the CUDA that torch was built with?"""

from __future__ import annotations

from firsttoken.doctor.finding import Finding
from firsttoken.machine.driver import Driver

_AREA = "driver"
_OPEN_DRIVERS = {"nouveau": "nouveau", "nova_core": "nova"}


def check_modules(driver: Driver) -> Finding:
    """Which driver holds the card."""
    why = "CUDA needs NVIDIA's own kernel module; a card that another driver holds cannot be used."
    other = [name for module, name in _OPEN_DRIVERS.items() if module in driver.modules]
    if other:
        name = other[0]
        return Finding(
            _AREA,
            "kernel module",
            "bad",
            f"{name} is loaded",
            why,
            f"Install NVIDIA's driver, keep {name} from loading (a file in /etc/modprobe.d with the line "
            f"`blacklist {other[0] if name == 'nouveau' else 'nova_core'}`), run `sudo update-initramfs -u`, restart.",
        )
    if driver.version is not None or "nvidia" in driver.modules:
        return Finding(_AREA, "kernel module", "ok", "nvidia", why)
    if driver.on_bus:
        cards = f"{len(driver.on_bus)} NVIDIA card{'s' if len(driver.on_bus) > 1 else ''} on the bus"
        return Finding(
            _AREA, "kernel module", "bad", f"none, with {cards}", why, "Install NVIDIA's driver, 580 or newer, restart."
        )
    return Finding(_AREA, "kernel module", "unread", "no NVIDIA card on the bus, no module", why)
