"""A server of our own for the length of one command: started as `firsttoken serve`, stopped whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

import httpx

from firsttoken.errors import FirstTokenError

_START_LIMIT = 1800.0  # seconds; a large model from a slow disk is not a hang
_STOP_LIMIT = 10.0  # seconds between asking and killing
_POLL = 0.02  # seconds
_PR_SET_PDEATHSIG = 1


class ServerFailed(FirstTokenError):
    """The server could not start or ended by itself."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    url: str  # its root
    start_seconds: float  # launch to ready
    log: Path  # what it printed


def free_port(wanted: int, host: str = "127.0.0.1") -> int:
    """`wanted` where nobody listens on it, else a port that the system chooses."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ServerFailed(f"No port can be opened on {host}: check the machine's firewall or container settings.")


@contextmanager
def local_server(
    arguments: Sequence[str],
    *,
    port: int,
    progress: Callable[[str], None] = lambda phase: None,
    command: Sequence[str] = (sys.executable, "-P", "-m", "firsttoken", "serve"),
) -> Iterator[LocalServer]:
    """Runs `serve` with `arguments` until the block ends; `progress` gets the phase's name whenever it changes.

    Its output goes to a log file that is shown only when the start fails. SIGTERM and SIGHUP to this process end the
    block as Ctrl-C does, so the server never outlives it.
    Raises ServerFailed.
    """
    start = time.monotonic()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="firsttoken-") as folder, polite_signals():
        log = Path(folder) / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*_tied(), *command, *arguments, "--host", "127.0.0.1", "--port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the terminal's Ctrl-C is for the answer, not for the server
            )
        try:
            _wait_ready(process, url, log, progress)
            yield LocalServer(url, time.monotonic() - start, log)
        finally:
            _stop(process)


def _wait_ready(process: subprocess.Popen[bytes], url: str, log: Path, progress: Callable[[str], None]) -> None:
    phase = ""
    deadline = time.monotonic() + _START_LIMIT
    with httpx.Client(timeout=5, trust_env=False) as http:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise ServerFailed(_last_words(process.returncode, log))
            try:
                response = http.get(f"{url}/health")
            except httpx.HTTPError:
                time.sleep(_POLL)
                continue
            if response.status_code == 200:
                return
            now = _phase(response)
            if now and now != phase:
                phase = now
                progress(phase)
            time.sleep(_POLL)
    raise ServerFailed(f"The server was not ready within {_START_LIMIT / 60:.0f} minutes.")


def _phase(response: httpx.Response) -> str:
    """The phase that a loading server names, or nothing."""
    try:
        body = response.json()
    except ValueError:
        return ""
    return str(body.get("phase") or "") if isinstance(body, dict) else ""


def _last_words(status: int, log: Path) -> str:
    """The server's own sentence if it left one, else the end of its log."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    for line in reversed(lines):
        if line.startswith("Error: "):
            return line.removeprefix("Error: ")
    return "\n".join([f"The server ended with status {status} before it was ready; its last lines were:", *lines[-15:]])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Asks politely, then kills the server's whole session: nothing is left running."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_LIMIT)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            _kill_session(process.pid)
            process.wait()
    _kill_session(process.pid)


def _kill_session(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # all gone already
        os.killpg(group, signal.SIGKILL)


def _tied() -> list[str]:
    """On Linux, words before a command that make SIGTERM reach it if this process dies without having stopped it."""
    if sys.platform != "linux":
        return []
    code = (
        "import ctypes, os, sys; "
        f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGTERM)}); "
        "os.getppid() == int(sys.argv[1]) or sys.exit(1); "  # it may have died just before
        "os.execvp(sys.argv[2], sys.argv[2:])"
    )
    return [sys.executable, "-P", "-c", code, str(os.getpid())]


@contextmanager
def polite_signals() -> Iterator[None]:
    """SIGTERM and a closed terminal unwind the stack like any exception, so that `finally` runs."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
