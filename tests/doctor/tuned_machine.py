"""Settings of a machine with an H200 and two groups of cores, on a double and in a folder; and a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from firsttoken.doctor.tuning.journal import Journal
from firsttoken.doctor.tuning.wishes import Settings
from tests.machine.h200_double import H200


class PowerCut(BaseException):
    """The machine goes down: nothing after it runs."""


class Crashing(H200):
    """Loses power at the n-th change, before or after it took effect."""

    def __init__(self, at: int, after: bool = False, **setup: Any) -> None:
        super().__init__(**setup)
        self._at, self._after = at, after

    def _set(self, name: str, handle: int, value: Any) -> None:
        if len(self.changes) == self._at and not self._after:
            raise PowerCut
        super()._set(name, handle, value)
        if len(self.changes) == self._at + 1 and self._after:
            raise PowerCut


def cores(root: Path, governor: str = "powersave", count: int = 2) -> Path:
    for number in range(count):
        policy = root / f"sys/devices/system/cpu/cpufreq/policy{number}"
        policy.mkdir(parents=True)
        (policy / "scaling_governor").write_text(f"{governor}\n")
        (policy / "scaling_available_governors").write_text("performance powersave schedutil\n")
    return root


def governor(root: Path, number: int = 0) -> str:
    return (root / f"sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor").read_text().strip()


def settings(nvml: H200 | None, root: Path, is_root: bool = True) -> Settings:
    return Settings(nvml, is_root, root)


def journal(root: Path, boot: str = "boot 1") -> Journal:
    return Journal(root / "var/tuning.json", boot)
