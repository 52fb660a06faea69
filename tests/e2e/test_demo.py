"""The whole demo as a person or a script runs it: real model, real server, real terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.cli.pseudo_terminal import in_terminal

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


@pytest.mark.demo
def test_in_a_terminal_ctrl_c_stops_an_answer_and_the_chat_goes_on(demo_file: Path) -> None:
    with in_terminal([*COMMAND, "18002"], LC_ALL="C.UTF-8") as demo:
        demo.wait_for(r"Starting the server")
        demo.wait_for(r"TTFT \d+ ms")
        demo.wait_for(r"/help")
        demo.type("Tell me a long story about a dragon and a knight, in ten chapters.\r")
        demo.wait_for(r"…[\s\S]*\w{3}")  # what is shown while nothing has come, then the answer
        demo.type("\x03")
        demo.wait_for(r"Stopped\.")
        demo.type("你好！\r")
        demo.wait_for(r"TTFT \d+ ms")
        demo.type("/quit\r")
        assert demo.process.wait(30) == 0
    assert refuses(18002)
