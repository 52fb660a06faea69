"""The rule by which the system clocks a group of cores."""

from __future__ import annotations

import os
from pathlib import Path


class Governor:
    """`scaling_governor` of one policy folder of /sys/devices/system/cpu/cpufreq."""

    kind = "CPU governor"
    unit = ""

    def __init__(self, policy: Path) -> None:
        self._policy = policy
        self.target = policy.name
        self.label = f"CPU governor, {policy.name}"

    def read(self) -> str:
        return (self._policy / "scaling_governor").read_text().strip()

    def why_not(self, value: str) -> str | None:
        known = (self._policy / "scaling_available_governors").read_text().split()
        return None if value in known else f"there is no governor {value!r} here, but {', '.join(known)}"

    def why_no_rights(self) -> str | None:
        file = self._policy / "scaling_governor"
        return None if os.access(file, os.W_OK) else f"{file} cannot be written by this user, or here"

    def write(self, value: str) -> None:
        (self._policy / "scaling_governor").write_text(value)

    def problem(self, value: str) -> str | None:
        now = self.read()
        return None if now == value else f"it reads {now} afterwards"


def governors(root: Path = Path("/")) -> list[Governor]:
    """Of every group of cores that has one; none in most virtual machines."""
    policies = (root / "sys/devices/system/cpu/cpufreq").glob("policy*")
    numbered = sorted(policies, key=lambda policy: int(policy.name.removeprefix("policy")))
    return [Governor(policy) for policy in numbered if (policy / "scaling_governor").exists()]
