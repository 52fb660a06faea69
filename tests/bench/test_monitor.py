"""Sampling beside a run: that it happens, stays cheap, and says what is absent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import psutil
import pytest
from tests.machine.nvml_double import RecordedNvml

from firsttoken.bench.monitor import INTERVAL, Monitor, Source
from firsttoken.bench.records import Sample
from firsttoken.bench.server_process import root_of_port
from firsttoken.bench.sources import GpuSource, HostSource, ProcessSource, is_local, monitor_for
from firsttoken.machine.gpu_sensors import GpuSensors

LISTEN = """
import os, socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]
if os.fork():
    server.close()
    print(port, flush=True)
sys.stdin.read()
"""  # the child listens, the parent only waits for it, as a supervisor does


class Counter:
    """A source that tells how often it was read."""

    def __init__(self) -> None:
        self.reads = 0

    def read(self, at: float) -> list[Sample]:
        self.reads += 1
        return [Sample(at=at, source="counter", values={"reads": float(self.reads)})]

    def absent(self) -> list[str]:
        return ["One sensor is not there."]


def monitor_of(*sources: Source, interval: float = 0.01) -> Monitor:
    return Monitor(lambda pid: sources, interval)


def test_samples_are_taken_at_start_between_and_at_stop() -> None:
    counter = Counter()
    monitor = monitor_of(counter)
    before = time.monotonic()
    monitor.start(None)
    assert counter.reads == 1
    while counter.reads < 3:
        assert time.monotonic() - before < 10
        time.sleep(0.005)
    monitor.stop()
    reads = counter.reads
    monitor.stop()
    assert counter.reads == reads
    times = [sample.at for sample in monitor.samples()]
    assert len(times) == reads
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= time.monotonic()


def test_a_monitor_that_starts_again_keeps_what_it_saw() -> None:
    monitor = monitor_of(Counter())
    for _ in range(2):
        monitor.start(None)
        monitor.stop()
    assert len(monitor.samples()) >= 4


def test_absent_sensors_are_said_once_each() -> None:
    monitor = monitor_of(Counter(), Counter())
    monitor.start(None)
    monitor.stop()
    assert monitor.absent() == ["One sensor is not there."]


@pytest.mark.parametrize("cost", [0.0001, 0.0016, 0.01, 0.3])
def test_dear_samples_are_taken_less_often_so_that_a_core_stays_free(cost: float) -> None:
    pause = monitor_of(interval=INTERVAL).pause_after(cost)
    assert pause >= INTERVAL
    assert cost / (cost + pause) < 0.01


def test_the_thread_rests_as_long_as_its_samples_were_dear() -> None:
    ticks = iter(range(1000))  # each sample seems to take a whole second of a core
    counter = Counter()
    monitor = Monitor(lambda pid: [counter], 0.001, cpu_time=lambda: float(next(ticks)))
    monitor.start(None)
    time.sleep(0.1)
    assert counter.reads == 2  # the first, and one after the short interval; the next is due after two minutes
    monitor.stop()


def test_each_card_gives_a_sample_with_units_in_its_names() -> None:
    source = GpuSource(GpuSensors(RecordedNvml(cards=3, absent={"energy"}, reasons=0x4)), indices=[0, 2])
    first, second = source.read(7.0)
    assert (first.source, second.source, first.at) == ("gpu0", "gpu2", 7.0)
    assert first.states == ["software power cap"]
    assert first.values == {
        "gpu_percent": 98.0,
        "memory_percent": 71.0,
        "memory_used_bytes": 8.6e9,
        "power_w": 412.35,
        "sm_clock_mhz": 1980.0,
        "memory_clock_mhz": 3201.0,
        "temperature_c": 41.0,
    }
    assert source.absent() == [f"gpu{i}: this card has no sensor for energy." for i in (0, 2)]


def test_who_works_on_a_card_is_sampled_beside_it() -> None:
    nvml = RecordedNvml()
    nvml.users = {41: 30}
    source = GpuSource(GpuSensors(nvml))
    assert [sample.source for sample in source.read(7.0)] == ["gpu0"]
    _, user = source.read(7.2)
    assert (user.source, user.values) == ("user:gpu0:41", {"sm_percent": 30.0})


def test_the_hosts_load_is_a_share_of_all_its_cores() -> None:
    source = HostSource(psutil)
    (first,) = source.read(0.0)
    assert first.values.keys() == {"memory_used_bytes"}  # a load needs two readings
    end = time.monotonic() + 0.15
    while time.monotonic() < end:
        pass
    (second,) = source.read(1.0)
    assert 0 < second.values["cpu_percent"] <= 100
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert second.values["cores"] == cores
    assert 0 < second.values["busy_cores"] <= cores


def burn(process: psutil.Process, seconds: float) -> None:
    """Waits until the process has used that much of a core."""
    deadline = time.monotonic() + 20
    while sum(process.cpu_times()[:2]) < seconds:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_tree_of_processes_is_read_without_the_servers_own() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    idle = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        server = ProcessSource(psutil, "server", busy.pid)
        client = ProcessSource(psutil, "client", os.getpid(), without=busy.pid)
        server.read(0.0)
        start = sum(psutil.Process(busy.pid).cpu_times()[:2])
        burn(psutil.Process(busy.pid), start + 0.2)
        (sample,) = server.read(0.4)  # as if 0.4 s had passed
        name, rest = sample.source.split("/")
        assert name == "process:server"
        assert rest.endswith(f":{busy.pid}")
        assert sample.values["cpu_percent"] >= 50 - 5
        assert sample.values["rss_bytes"] > 1e6
        pids = {int(sample.source.rsplit(":", 1)[1]) for sample in client.read(0.0)}
        assert {os.getpid(), idle.pid} <= pids
        assert busy.pid not in pids
    finally:
        for child in (busy, idle):
            child.kill()
            child.communicate()


def test_a_process_that_has_ended_has_no_samples() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert ProcessSource(psutil, "server", ended.pid).read(0.0) == []


def test_the_server_behind_a_port_is_the_job_that_its_listener_belongs_to() -> None:
    command = [sys.executable, "-c", LISTEN]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        assert job.stdout is not None
        port = int(job.stdout.readline())
        assert root_of_port(psutil, port) == job.pid
        assert root_of_port(psutil, port, own_pid=job.pid) != job.pid  # never the one who asks
        assert job.stdin is not None
        job.stdin.close()
    assert root_of_port(psutil, port) is None


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost:8000", True),
        ("http://[::1]:8000", True),
        ("http://10.20.30.40:8000", False),
        ("https://api.example.com/v1", False),
    ],
)
def test_a_server_on_this_machine_is_told_from_another(url: str, local: bool) -> None:
    assert is_local(url) == local


def opened(url: str, pid: int | None = None, has_psutil: bool = True) -> tuple[set[str], list[str]]:
    """Kinds of sources that a monitor of `url` reads, and what it says is absent."""

    def load(name: str) -> Any:
        if not has_psutil:
            raise ImportError(name)
        return psutil

    monitor = monitor_for(url, sensors=lambda: GpuSensors(RecordedNvml()), import_module=load)
    monitor.start(pid)
    monitor.stop()
    return kinds(monitor.samples()), monitor.absent()


def kinds(samples: Sequence[Sample]) -> set[str]:
    return {sample.source.split("/")[0] for sample in samples}


def test_a_launched_server_is_read_with_its_card_and_host() -> None:
    command = [sys.executable, "-c", LISTEN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        found, absent = opened(f"http://127.0.0.1:{port}", server.pid)
        elsewhere = opened(f"http://127.0.0.1:{port + 1}", server.pid)
    assert found == {"gpu0", "host", "process:server", "process:client"}
    assert absent == []
    # A command that hands the server on, to a container say: its own processes are not the server's.
    assert elsewhere[0] == {"gpu0", "host", "process:client"}
    assert elsewhere[1] == ["Server's processes: not read, because the launched command does not listen itself."]


def test_a_port_that_nobody_serves_is_said() -> None:
    found, absent = opened("http://127.0.0.1:1")
    assert found == {"gpu0", "host", "process:client"}
    assert absent == ["Server's processes: not read, because nobody seen here listens on port 1."]


def test_of_a_server_elsewhere_only_the_client_is_read() -> None:
    found, absent = opened("http://192.0.2.1:8000")
    assert found == {"process:client"}
    assert absent == ["GPU, host and processes of the server: not read, because it is on another machine."]


def test_without_psutil_the_card_is_still_read() -> None:
    found, (absent,) = opened("http://127.0.0.1:1", has_psutil=False)
    assert found == {"gpu0"}
    assert "psutil is not installed" in absent
