from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import pytest

from firsttoken.bench.launch import LaunchedServer, group_members
from firsttoken.errors import Unavailable

FAMILY = """
import os, signal, subprocess, sys, time
if {stubborn}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; print('child', flush=True); time.sleep(60)"])
print("up", flush=True)
time.sleep(60)
"""


def family(stubborn: bool) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(FAMILY.format(stubborn=stubborn))}"


def wait_for_family(server: LaunchedServer) -> float:
    return server.wait_ready(lambda: b"child" in server.log.read_bytes(), timeout=10)


def test_launch_to_ready_is_timed(tmp_path: Path) -> None:
    with LaunchedServer("sleep 60", tmp_path / "log") as server:
        asked = iter([False, False, True])
        before = time.monotonic() - server.started
        ready = server.wait_ready(lambda: next(asked), timeout=5)
        assert before + 0.1 <= ready <= time.monotonic() - server.started


@pytest.mark.parametrize("stubborn", [False, True])
def test_the_whole_group_is_stopped(tmp_path: Path, stubborn: bool) -> None:
    server = LaunchedServer(family(stubborn), tmp_path / "log", patience=0.3)
    wait_for_family(server)
    assert len(group_members(server.pid)) >= 2
    server.stop()
    assert group_members(server.pid) == []
    assert b"up" in server.log.read_bytes()
    server.stop()  # again, and nothing happens


def test_a_child_that_outlives_the_command_is_stopped_too(tmp_path: Path) -> None:
    server = LaunchedServer("sleep 60 & echo gone", tmp_path / "log", patience=5)
    with pytest.raises(Unavailable, match="ended with code 0; its log's last line: gone"):
        server.wait_ready(lambda: False, timeout=5)
    assert group_members(server.pid)
    server.stop()
    assert group_members(server.pid) == []


def test_a_command_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = "echo loading; echo 'no memory left' >&2; echo; exit 3"
    with LaunchedServer(command, tmp_path / "deep" / "log") as server, pytest.raises(Unavailable) as caught:
        server.wait_ready(lambda: False, timeout=5)
    assert "ended with code 3; its log's last line: no memory left (all of it in " in str(caught.value)


def test_a_killed_command_is_told(tmp_path: Path) -> None:
    with LaunchedServer("kill -9 $$", tmp_path / "log") as server, pytest.raises(Unavailable) as caught:
        server.wait_ready(lambda: False, timeout=5)
    assert "by signal 9; its log's last line: it said nothing" in str(caught.value)


def test_a_server_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    words = r"not ready after 0\.3 s; .*still loading.*--ready-timeout"
    with (
        LaunchedServer("echo still loading; sleep 60", tmp_path / "log") as server,
        pytest.raises(Unavailable, match=words),
    ):
        server.wait_ready(lambda: False, timeout=0.3)
