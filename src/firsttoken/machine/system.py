"""What surrounds a server on its host: the container, limits on files, ports that are taken."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firsttoken.machine.kernel_files import program_name, read_file

_LISTENS = "0A"  # of a socket's states in /proc/net/tcp


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One reading. What the system does not tell is None."""

    kernel: str | None
    container: str | None  # "docker", "podman", "kubernetes", "lxc"; None outside of one
    virtual: bool  # the processor says that it is shared out by a hypervisor
    files_soft: int | None  # None where there is no limit
    files_hard: int | None
    shared_memory: int | None  # bytes of /dev/shm
    ports_taken: dict[int, str | None]  # of those asked about: port and, where it can be seen, the process
    device_files: tuple[str, ...]  # /dev/nvidia0 and its kind


def read_system(ports: Sequence[int], root: Path = Path("/")) -> System:
    """Reads /proc, /sys and /dev below `root`; `ports` are those that servers would listen on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return System(
        kernel=read_file(root / "proc/sys/kernel/osrelease"),
        container=_container(root),
        virtual=" hypervisor" in (read_file(root / "proc/cpuinfo") or ""),
        files_soft=None if soft == resource.RLIM_INFINITY else soft,
        files_hard=None if hard == resource.RLIM_INFINITY else hard,
        shared_memory=_size(root / "dev/shm"),
        ports_taken={
            port: _owner(inode, root) for port, inode in sorted(_listening(root).items()) if port in set(ports)
        },
        device_files=tuple(f"/dev/{path.name}" for path in sorted((root / "dev").glob("nvidia*")) if not path.is_dir()),
    )


def _container(root: Path) -> str | None:
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    groups = read_file(root / "proc/1/cgroup") or ""
    for word, name in (("kubepods", "kubernetes"), ("docker", "docker"), ("lxc", "lxc"), ("containerd", "containerd")):
        if word in groups:
            return name
    return None


def _listening(root: Path) -> dict[int, str]:
    """Port: its socket's inode, over both versions of IP."""
    found: dict[int, str] = {}
    for name in ("tcp6", "tcp"):
        for line in (read_file(root / "proc/net" / name) or "").splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTENS:
                found[int(words[1].rpartition(":")[2], 16)] = words[9]
    return found


def _owner(inode: str, root: Path) -> str | None:
    """The process that holds a socket; None where this user cannot see it."""
    target = f"socket:[{inode}]"
    for process in (root / "proc").glob("[0-9]*"):
        try:
            if any(str(link.readlink()) == target for link in (process / "fd").iterdir()):
                return f"{program_name(process)}, process {process.name}"
        except OSError:
            continue
    return None


def _size(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return None
