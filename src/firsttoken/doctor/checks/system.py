"""What surrounds a server: container, limits, ports."""

from __future__ import annotations

from firsttoken.doctor.finding import Finding
from firsttoken.machine.system import System

_AREA = "host"
_FILES = 4096  # a connection is an open file, and a flood of them must not keep everybody out


def check_system(system: System) -> list[Finding]:
    return [check_container(system), check_files(system), *check_ports(system)]


def check_container(system: System) -> Finding:
    why = "In a container or a virtual machine some readings are hidden, and host tuning must be done on the host."
    parts = [
        f"container ({system.container})" if system.container else "no container",
        "virtual machine" if system.virtual else "",
        f"kernel {system.kernel}" if system.kernel else "",
    ]
    return Finding(_AREA, "container", "ok", ", ".join(part for part in parts if part), why)


def check_files(system: System) -> Finding:
    why = "Each connection is an open file. The server raises its limit as far as the hard one allows."
    soft = "unlimited" if system.files_soft is None else f"{system.files_soft:,}"
    hard = "unlimited" if system.files_hard is None else f"{system.files_hard:,}"
    reading = f"{soft}, at most {hard}"
    if system.files_hard is None or system.files_hard >= _FILES:
        return Finding(_AREA, "open files", "ok", reading, why)
    fix = "Raise the hard limit: `docker run --ulimit nofile=65536`, LimitNOFILE in systemd, /etc/security/limits.conf."
    return Finding(_AREA, "open files", "warn", reading, why, fix)


def check_ports(system: System) -> list[Finding]:
    """One finding a port that is taken; one for all where none is."""
    why = "A server cannot start on a taken port; a client that is sent there talks to somebody else."
    taken = [
        Finding(
            _AREA,
            f"port {port}",
            "warn",
            f"taken{f' by {owner}' if owner else ''}",
            why,
            f"If it is the server that you mean to use, all is well; else stop it, or serve with `--port {port + 1}`.",
        )
        for port, owner in system.ports_taken.items()
    ]
    return taken or [Finding(_AREA, "ports", "ok", "those of the server and of the chat page are free", why)]
