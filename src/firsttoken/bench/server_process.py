"""Which process serves a port, and from which one the whole server came."""

from __future__ import annotations

import os
from typing import Any


def root_of_port(psutil: Any, port: int, own_pid: int | None = None) -> int | None:
    """The process whose tree is the server at `port`: a listener's topmost ancestor within its process group.

    A server has more processes than its listeners (an engine, a supervisor); a shell starts each job in a group of its
    own. This process and its ancestors are never the server, even where a script started both in one group. None where
    no listener is seen: another user's, or one behind a proxy.
    """
    own_pid = os.getpid() if own_pid is None else own_pid
    try:
        listeners = {
            connection.pid
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid
        }
        ours = {own_pid, *(parent.pid for parent in psutil.Process(own_pid).parents())}
    except psutil.Error:
        return None
    found = [_top(psutil, pid, ours) for pid in sorted(listeners - ours)]
    return found[0] if found else None


def has_listener(psutil: Any, root: int, port: int) -> bool:
    """Whether a process, or one that came from it, listens on the port itself. False where it cannot be read."""
    try:
        tree = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    except psutil.Error:
        return False
    return any(_listens(psutil, process, port) for process in tree)


def _listens(psutil: Any, process: Any, port: int) -> bool:
    try:
        connections = process.net_connections("tcp")
    except psutil.Error:  # it has ended
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in connections)


def _top(psutil: Any, pid: int, ours: set[int]) -> int:
    try:
        group = os.getpgid(pid)
        for parent in psutil.Process(pid).parents():
            if parent.pid in ours or os.getpgid(parent.pid) != group:
                break
            pid = parent.pid
    except (psutil.Error, OSError):
        pass
    return pid
