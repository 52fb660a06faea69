"""kill -9 of the tuner: the session goes on to the same verdicts, and no server is left behind."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from firsttoken.bench.launch import group_members

ROOT = Path(__file__).resolve().parents[2]
_KILLS = 10


def command(folder: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "tests.tune.tuner_process", str(folder), *flags]


def whole(folder: Path, *flags: str) -> str:
    done = subprocess.run(command(folder, *flags), cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def groups(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "groups").read_text().split()]


def lines(folder: Path) -> int:
    path = folder / "journal.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_tuner_killed_at_ten_random_points_reaches_the_same_verdicts_and_leaves_no_process(tmp_path: Path) -> None:
    draw = random.Random(20)
    killed = 0
    for _ in range(_KILLS):
        begun = lines(tmp_path)
        tuner = subprocess.Popen(command(tmp_path, *(["--resume"] if begun else [])), cwd=ROOT)
        # Some runs further than the last time, and then at any moment of a run.
        until, deadline = begun + draw.randrange(1, 4), time.monotonic() + 30
        while lines(tmp_path) < until and tuner.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(draw.random() * 0.1)
        tuner.send_signal(signal.SIGKILL)
        tuner.wait()
        killed += tuner.returncode == -signal.SIGKILL
    assert killed == _KILLS
    assert 10 < lines(tmp_path) < 60
    found = whole(tmp_path, "--resume")
    assert found == whole(tmp_path / "unbroken", "--without-servers")
    assert found.startswith("['block = 32']")
    left = [pid for group in groups(tmp_path) for pid in group_members(group)]
    assert left == []


TUNER = """
import sys, time
from pathlib import Path
from firsttoken.bench.launch import LaunchedServer
from firsttoken.tune.guarded import guarded
note = Path(sys.argv[1])
with LaunchedServer(guarded("sleep 300 & exec sleep 300", note), note.with_name("log")):
    time.sleep(300)
"""


def test_a_killed_tuners_server_ends_by_itself_with_all_its_processes(tmp_path: Path) -> None:
    note = tmp_path / "server.pid"
    deadline = time.monotonic() + 60
    with subprocess.Popen([sys.executable, "-c", TUNER, str(note)], cwd=ROOT) as tuner:
        members, leader = 0, 0
        while members < 3 and time.monotonic() < deadline:  # guard, server, and the server's other process
            time.sleep(0.02)
            leader = int(note.read_text() or 0) if note.exists() else 0
            members = len(group_members(leader)) if leader else 0
        tuner.kill()
    assert members == 3
    while group_members(leader) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert group_members(leader) == []
    assert not note.exists()
