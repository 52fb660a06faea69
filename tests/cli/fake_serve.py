"""`serve` with a fake engine, and with stub workers or the real ones. `launch` runs it as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from firsttoken.cli.children import WORKER, Commands
from firsttoken.cli.page_process import Page
from firsttoken.cli.serve import StartPage, run_server
from firsttoken.config import EngineConfig, ServerConfig

STUB = (sys.executable, "-m", "tests.cli.stub_worker")
ENGINE = (sys.executable, "-m", "tests.engine.fake_engine")


def main() -> int:
    given = json.loads(sys.argv[1])
    server = ServerConfig(**given["server"])
    commands = Commands(engine=ENGINE, worker=WORKER if given["http"] else STUB)

    def find(note: Callable[[str], None]) -> tuple[str, str]:
        note("Looking for the model")
        time.sleep(given["finding"])
        return given["model"], server.tokenizer_path

    engine = EngineConfig(model="", path="", max_queue=given["max_queue"])
    page = stub_page(given["page"]) if given["page"] else None
    return run_server(engine, server, find, commands, page=page, grace=given["grace"])


def stub_page(kind: str) -> StartPage:
    def start(url: str, note: Callable[[str], None]) -> Callable[[], Page]:
        command = (sys.executable, "-m", "firsttoken.tied", "tests.cli.stub_page", kind)
        return lambda: Page(command, os.environ)

    return start


class Launched:
    """A running `serve`: its output, its children, and how it ends."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.out = ""
        self.err = ""

    def wait_ready(self) -> str:
        """The server's root URL, from the first line of the summary."""
        assert self.popen.stdout
        for line in self.popen.stdout:
            self.out += line
            if line.startswith("  ready in"):
                return self.out.split(" at ")[1].split("/v1")[0]
        raise AssertionError(f"never ready: {self.finish()}")

    def children(self) -> dict[str, list[int]]:
        """Process ids of the children by kind."""
        found: dict[str, list[int]] = {"engine": [], "worker": [], "tied": []}
        for pid in _children_of(self.popen.pid):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            module = command.partition(b"-m\0")[2].partition(b"\0")[0]  # empty in the moment of its birth
            for kind in found:
                if kind.encode() in module:
                    found[kind].append(pid)
        return found

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def finish(self, timeout: float = 15) -> int:
        """Waits for the end; returns the exit code. `out` and `err` are complete then."""
        out, err = self.popen.communicate(timeout=timeout)
        self.out += out
        self.err += err
        return self.popen.returncode


@contextmanager
def launch(
    *,
    model: str = "fake",
    http: bool = False,
    grace: float = 5.0,
    max_queue: int = 1024,
    finding: float = 0.0,
    page: str = "",
    env: dict[str, str] | None = None,
    **server: Any,
) -> Iterator[Launched]:
    """Starts it; at the end of the block it is killed if it still runs, and no child may be left.

    `page` is the kind of the stub that stands in for the chat page; none without it.
    """
    given = {
        "server": {"tokenizer_path": "", "port": 0, "drain_seconds": 5.0, "served_model_names": ["fake"]} | server,
        "model": model,
        "http": http,
        "grace": grace,
        "max_queue": max_queue,
        "finding": finding,
        "page": page,
    }
    popen = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.fake_serve", json.dumps(given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | (env or {}),
    )
    launched = Launched(popen)
    try:
        yield launched
    finally:
        children = _children_of(popen.pid)
        popen.kill()
        popen.communicate()
        until(lambda: not any(alive(pid) for pid in children))


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _children_of(pid: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in tasks.split()]


if __name__ == "__main__":
    sys.exit(main())
