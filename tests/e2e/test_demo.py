"""The whole demo as a person or a script runs it: real model, real server, real terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

COMMAND = [sys.executable, "-m", "firsttoken", "demo", "--port"]


def port_of(screen: str) -> int:
    found = re.search(r"The API is at http://127\.0\.0\.1:(\d+)/v1", screen)
    assert found is not None, screen
    return int(found[1])


def refuses(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)
    except httpx.ConnectError:
        return True
    return False


@pytest.mark.demo
def test_without_a_terminal_the_demo_answers_and_leaves_nothing_running(demo_file: Path) -> None:
    done = subprocess.run([*COMMAND, "18001"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Paris" in done.stdout
    assert re.search(r"TTFT \d+ ms · [\d.]+ tok/s · \d+ tokens", done.stdout)
    assert re.search(r"ceiling \d+ tok/s: memory reads [\d.]+ GB/s", done.stdout)
    assert f"curl http://127.0.0.1:{port_of(done.stdout)}/v1/chat/completions" in done.stdout
    assert "barely speaks Chinese" in done.stdout
    assert refuses(port_of(done.stdout))


class Terminal:
    """A program in a terminal of its own, driven by a person who waits for what they see."""

    def __init__(self, command: list[str]) -> None:
        self._fd, inside = pty.openpty()
        # The first terminal that a new session opens is its own: from then on Ctrl-C is a signal to what runs in it.
        opener = "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); os.execv(sys.argv[1], sys.argv[1:])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", opener, *command], stdin=inside, stdout=inside, stderr=inside, start_new_session=True
        )
        os.close(inside)
        self.screen = ""

    def wait_for(self, pattern: str, seconds: float = 60) -> None:
        """Reads on until the part of the screen that has not been waited for yet matches, and forgets that part."""
        deadline = time.monotonic() + seconds
        while True:
            if found := re.search(pattern, self.screen):
                self.screen = self.screen[found.end() :]
                return
            assert time.monotonic() < deadline, f"{pattern!r} is not on the screen:\n{self.screen}"
            if select.select([self._fd], [], [], 0.1)[0]:
                try:
                    self.screen += os.read(self._fd, 65536).decode(errors="replace")
                except OSError:  # the program has ended
                    deadline = 0

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        os.close(self._fd)


@pytest.fixture
def demo(demo_file: Path) -> Iterator[Terminal]:
    terminal = Terminal([*COMMAND, "18002"])
    yield terminal
    terminal.close()


@pytest.mark.demo
def test_in_a_terminal_ctrl_c_stops_an_answer_and_the_chat_goes_on(demo: Terminal) -> None:
    demo.wait_for(r"Starting the server")
    demo.wait_for(r"TTFT \d+ ms")
    demo.wait_for(r"/help")
    demo.type("Count from one to one thousand in words, one per line.\r")
    demo.wait_for(r"per line\.\r\n.*\w{3}")
    demo.type("\x03")
    demo.wait_for(r"Stopped\.")
    demo.type("你好！\r")
    demo.wait_for(r"TTFT \d+ ms")
    demo.type("/quit\r")
    assert demo.process.wait(30) == 0
    assert refuses(18002)
