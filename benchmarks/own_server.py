"""A firsttoken server of a script's own, from its launch to its end."""

from __future__ import annotations

import shlex
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from firsttoken.bench.launch import LaunchedServer

SERVE = (sys.executable, "-m", "firsttoken", "serve")
_READY_WITHIN = 180.0  # seconds; a card's first start compiles its kernels


@contextmanager
def own_server(command: Sequence[str], log: Path) -> Iterator[str]:
    """Runs `command` at a free port; gives the server's URL once it is ready. Raises Unavailable in a sentence.

    Whatever happens, the whole process group has ended afterwards.
    """
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with LaunchedServer(shlex.join([*command, "--port", str(port)]), log) as server:
        server.wait_ready(lambda: _answers(f"{url}/ready"), _READY_WITHIN)
        yield url


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except (urllib.error.URLError, OSError):
        return False
