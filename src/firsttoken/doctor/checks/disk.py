"""How long will loading a model take, and is there room for one?"""

from __future__ import annotations

from firsttoken.doctor.finding import Finding
from firsttoken.doctor.quantities import gibibytes
from firsttoken.machine.disk import Disk

_AREA = "host"
_MODEL = 8.04e9  # bytes of Qwen3-4B in bf16
_SLOW, _TOO_SLOW = 1e9, 0.2e9  # bytes a second: eight and forty seconds for that model
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "glusterfs", "afs")
_IN_MEMORY = ("tmpfs", "ramfs")


def check_disk(disk: Disk) -> list[Finding]:
    """Speed and room of the folder that holds models."""
    return [check_speed(disk), check_room(disk)]


def check_speed(disk: Disk) -> Finding:
    why = "A first start reads all weights from here; later ones find them in memory as long as that has room."
    where = f"{disk.folder} ({disk.filesystem or 'unknown file system'})"
    if disk.filesystem in _IN_MEMORY:
        return Finding(_AREA, "model disk", "ok", f"{where} is memory", why)
    remote = disk.filesystem in _REMOTE or (disk.filesystem or "").startswith("fuse")
    if disk.rate is None:
        reading = f"{where}: not measured, because {disk.why_unmeasured} (`--models` names another place)"
        if remote:
            fix = "Keep models on a disk of this machine (`--download-dir`, HF_HOME)."
            return Finding(_AREA, "model disk", "warn", f"{reading}; it is reached over a network", why, fix)
        return Finding(_AREA, "model disk", "unread", reading, why)
    reading = f"{disk.rate / 1e9:.2f} GB/s from {where}: {_MODEL / disk.rate:.0f} s for 8 GB of weights"
    if disk.rate >= _SLOW:
        return Finding(_AREA, "model disk", "ok", reading, why)
    fix = "Keep models on a faster disk (NVMe) of this machine: `--download-dir`, or HF_HOME for all programs."
    return Finding(_AREA, "model disk", "bad" if disk.rate < _TOO_SLOW else "warn", reading, why, fix)


def check_room(disk: Disk) -> Finding:
    why = "A download that fills the disk fails at its end, and other programs with it."
    reading = f"{gibibytes(disk.free)} free in {disk.folder}"
    if disk.free >= 1.25 * _MODEL:
        return Finding(_AREA, "disk room", "ok", reading, why)
    fix = "Make room, or keep models elsewhere (`--download-dir`, HF_HOME); Qwen3-4B in bf16 takes 7.5 GiB."
    return Finding(_AREA, "disk room", "warn", reading, why, fix)
