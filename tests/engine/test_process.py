"""The engine process as a whole: its start, its end, and what its workers hear of both."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.engine.bare_worker import Worker, listen, request
from tests.engine.fake_engine import POISON

from firsttoken.config import EngineConfig
from firsttoken.wire import (
    Accepted,
    Failed,
    Loading,
    Ready,
    Rejected,
    Step,
    Submit,
    ToWorker,
)

CONFIG = EngineConfig(model="fake", path="/nowhere")


class Process:
    """A real engine process with a fake engine inside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.workers: list[Worker] = []
        listener = listen(path)
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.fake_engine", str(listener.fileno())],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )
        listener.close()

    def worker(self) -> Worker:
        self.workers.append(Worker(self.path))
        return self.workers[-1]

    def configure(self, config: EngineConfig) -> None:
        assert self.popen.stdin
        self.popen.stdin.write(msgspec.json.encode(config) + b"\n")
        self.popen.stdin.flush()

    def close(self) -> None:
        for worker in self.workers:
            worker.sock.close()
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stderr):
            assert pipe
            pipe.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "engine")
    yield process
    process.close()


def test_a_worker_connects_before_the_load_and_hears_progress_ready_and_tokens(process: Process) -> None:
    worker = process.worker()
    worker.send(Submit(request("early")))
    process.configure(CONFIG)
    messages: list[ToWorker | None] = []
    while not isinstance(messages[-1] if messages else None, Ready):
        messages.append(worker.next())
    assert Loading("weights", 0.5) in messages
    assert [m.kind for m in messages if isinstance(m, Rejected)] == ["unavailable"]
    ready = messages[-1]
    assert isinstance(ready, Ready)
    assert set(ready.info.phases) == {"import torch", "wait for files", "weights"}
    worker.send(Submit(request("a")))
    assert worker.next() == Accepted("a")
    assert [type(worker.next()) for _ in range(3)] == [Step] * 3


def test_a_user_s_mistake_at_load_is_one_sentence_and_exit_code_1(process: Process) -> None:
    worker = process.worker()
    process.configure(EngineConfig(model="broken", path="/"))
    messages: list[ToWorker | None] = []
    while not messages or messages[-1] is not None:
        messages.append(worker.next())
    assert messages[-2] == Failed("The model is broken; choose another.")
    assert process.popen.wait(10) == 1
    assert process.popen.stderr
    assert b"Traceback" not in process.popen.stderr.read()


def test_an_exception_in_a_step_is_logged_told_to_every_worker_and_ends_the_process(process: Process) -> None:
    one, two = process.worker(), process.worker()
    process.configure(CONFIG)
    while not isinstance(one.next(), Ready):
        pass
    one.send(Submit(request("a", POISON)))
    for worker in (one, two):
        messages: list[ToWorker | None] = []
        while not messages or messages[-1] is not None:
            messages.append(worker.next())
        assert messages[-2] == Failed("The engine has failed: RuntimeError: poisoned")
    assert process.popen.wait(10) == 1
    assert process.popen.stderr
    assert b"Traceback" in process.popen.stderr.read()


def test_an_idle_engine_sleeps_and_wakes_at_once(process: Process) -> None:
    worker = process.worker()
    process.configure(CONFIG)
    while not isinstance(worker.next(), Ready):
        pass
    ticks = cpu_ticks(process.popen.pid)
    assert select.select([worker.sock], [], [], 0.5)[0] == []
    assert cpu_ticks(process.popen.pid) - ticks <= 2
    worker.send(Submit(request("a")))
    assert worker.next() == Accepted("a")


@pytest.mark.parametrize("moment", ["import", "load", "run"])
def test_the_process_ends_with_its_supervisor_in_every_phase(process: Process, moment: str) -> None:
    worker = process.worker()
    if moment != "import":
        process.configure(EngineConfig(model="slow" if moment == "load" else "fake", path="/"))
        goal = Ready if moment == "run" else Loading
        while not isinstance(worker.next(), goal):
            pass
    assert process.popen.stdin
    process.popen.stdin.close()
    assert process.popen.wait(10) == 1


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])
