"""Looking again and again: over HTTP, at a card, through restarts; and what is known beforehand."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from firsttoken.bench.http_client import Address
from firsttoken.bench.records import ServerIdentity
from firsttoken.bench.roofline_judge import GivenRates
from firsttoken.bench.served import Served
from firsttoken.doctor.live.follow import follow, once
from firsttoken.doctor.live.known import find_bounds
from firsttoken.doctor.live.local_sensors import LocalCores, local_sensors
from firsttoken.doctor.live.watch import Watch
from firsttoken.errors import ConfigError, Unavailable
from firsttoken.machine.gpu import Gpu
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.machine.gpu_sensors import GpuSensors
from tests.doctor.scripted_metrics import BOUNDS, H200, Scripted
from tests.machine.nvml_double import RecordedNvml
from tests.qwen3_4b import CONFIG

URL = "http://127.0.0.1:8000"
CARD = Gpu(index=0, name="NVIDIA H200", memory_total=1, memory_free=1, driver="580")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def served(answer: httpx.Response) -> Served:
    return Served(Address.parse(URL), transport=httpx.MockTransport(lambda request: answer))


def test_one_look_lasts_as_long_as_it_was_told() -> None:
    clock, server = Clock(), Scripted(engine="vllm", step_s=0.00359)
    watch = Watch(lambda: server.text(clock.now), BOUNDS, seconds=5, clock=clock)
    found = once(watch, 5, 0.5, clock.sleep, clock)
    assert found.finding.verdict == "memory-bound"
    assert found.window.seconds == pytest.approx(5)


def test_a_verdict_forgets_what_was_before_its_seconds() -> None:
    clock = Clock()
    busy, idle = Scripted(engine="vllm", step_s=0.00359), Scripted(engine="vllm", step_s=0.01, active=0, running=0)

    def fetch() -> str:
        return busy.text(clock.now) if clock.now < 10 else idle.text(0.0).replace("5000.0", "15000.0")

    watch = Watch(fetch, BOUNDS, seconds=4, clock=clock)
    verdicts = []
    while clock.now < 20:
        found = watch.look()
        verdicts.append(found and found.finding.verdict)
        clock.sleep(1)
    assert verdicts[9] == "memory-bound"
    assert verdicts[-1] == "idle"


def test_a_restart_begins_a_new_window() -> None:
    clock, server = Clock(), Scripted(engine="vllm", step_s=0.00359)
    texts = iter([server.text(100), server.text(101), server.text(0), server.text(1)])
    watch = Watch(lambda: next(texts), BOUNDS, seconds=10, clock=clock)
    seen = []
    for _ in range(4):
        seen.append(watch.look() is not None)
        clock.sleep(1)
    assert seen == [False, True, False, True]


def test_one_look_goes_on_for_a_while_when_the_server_starts_anew_at_its_end() -> None:
    clock, server = Clock(), Scripted(engine="vllm", step_s=0.00359)
    texts = iter([server.text(100), server.text(0), server.text(1)])
    watch = Watch(lambda: next(texts), BOUNDS, seconds=1, clock=clock)
    assert once(watch, 1, 1, clock.sleep, clock).window.seconds == 1


def test_one_look_at_a_server_that_starts_anew_all_the_time_says_so() -> None:
    clock, server = Clock(), Scripted(engine="vllm", step_s=0.00359)
    watch = Watch(lambda: server.text(100 - clock.now), BOUNDS, seconds=1, clock=clock)
    with pytest.raises(Unavailable, match="anew"):
        once(watch, 1, 1, clock.sleep, clock)


def test_a_view_outlives_a_server_that_goes_away_and_ends_with_ctrl_c() -> None:
    clock, server = Clock(), Scripted(engine="firsttoken", step_s=0.00225)
    console = Console(file=io.StringIO(), force_terminal=True, width=100)

    def fetch() -> str:
        if clock.now == 3:
            raise Unavailable("no server answers")
        return server.text(clock.now)

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now > 5:
            raise KeyboardInterrupt

    follow(Watch(fetch, BOUNDS, seconds=5, clock=clock), "qwen at home", console, 1.0, sleep)
    drawn = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "memory-bound" in drawn
    assert "no server answers; still looking" in drawn
    assert "times the tok/s, by the roofline" in drawn


def test_the_cards_sensors_are_read_with_the_metrics_and_closed() -> None:
    nvml = RecordedNvml(cards=2, reasons=0x40)
    clock, server = Clock(), Scripted(engine="vllm", step_s=0.00359)
    with local_sensors(URL, "cuda:1", lambda: GpuSensors(nvml)) as card:
        watch = Watch(lambda: server.text(clock.now), BOUNDS, card, seconds=2, clock=clock)
        found = once(watch, 2, 1, clock.sleep, clock)
    assert found.finding.verdict == "throttled"
    assert "1980 of at most 1980 MHz" in found.finding.evidence[0]
    assert nvml.open == 0


def test_no_card_is_read_for_another_machine_or_a_cpu() -> None:
    def opened() -> GpuSensors:
        raise AssertionError("opened")

    with local_sensors("http://10.0.0.9:8000", "cuda:0", opened) as sensors:
        assert sensors is None
    with local_sensors(URL, "cpu", opened) as sensors:
        assert isinstance(sensors, LocalCores)
    with local_sensors(URL, "cuda:0", lambda: "no driver") as sensors:
        assert sensors is None


@pytest.mark.parametrize(("runnable", "verdict"), [(3, "memory-bound"), (9, "throttled")])
def test_a_server_on_a_cpu_that_others_use_is_held_back(tmp_path: Path, runnable: int, verdict: str) -> None:
    (tmp_path / "loadavg").write_text(f"8.55 9.20 7.85 {runnable}/176 16661\n")
    clock, server = Clock(), Scripted(engine="firsttoken", step_s=1.0)
    cpu = replace(BOUNDS, ceilings=Ceilings("CPU (2 threads)", read=16e9), on_cpu=True)
    watch = Watch(lambda: server.text(clock.now), cpu, LocalCores(tmp_path / "loadavg", 2), seconds=4, clock=clock)
    found = once(watch, 4, 1, clock.sleep, clock)
    assert found.finding.verdict == verdict
    if verdict == "throttled":
        assert "4.00 threads" in found.finding.evidence[0]


def test_programs_that_may_have_slowed_a_server_on_a_cpu_are_told_beside_its_verdict(tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text("8.55 9.20 7.85 5/176 16661\n")
    clock, server = Clock(), Scripted(engine="firsttoken", step_s=2.0, wait_share=0.95)
    cpu = replace(BOUNDS, ceilings=Ceilings("CPU (2 threads)", read=16e9), on_cpu=True)
    watch = Watch(lambda: server.text(clock.now), cpu, LocalCores(tmp_path / "loadavg", 2), seconds=4, clock=clock)
    found = once(watch, 4, 1, clock.sleep, clock).finding
    assert found.verdict == "compute-bound"
    assert "for which a CPU has no one ceiling" in found.evidence[2]
    assert found.evidence[-1].startswith("For each core 2.00 threads wanted to run")


def test_a_reading_without_numbers_is_left_out_and_waited_for() -> None:
    clock, server = Clock(), Scripted(engine="firsttoken", step_s=0.00225)

    def fetch() -> str:
        clock.sleep(3)
        text = server.text(clock.now)
        if clock.now == 6:
            return "\n".join(line for line in text.splitlines() if ":engine_state" in line)
        return text

    watch = Watch(fetch, BOUNDS, seconds=5, clock=clock)
    assert once(watch, 5, 0.5, clock.sleep, clock).finding.verdict == "memory-bound"


def test_a_server_that_never_tells_its_numbers_is_told_as_that() -> None:
    clock = Clock()
    watch = Watch(lambda: 'firsttoken:engine_state{state="hung"} 1\n', BOUNDS, seconds=2, clock=clock)
    with pytest.raises(Unavailable, match="no numbers"):
        once(watch, 2, 0.5, clock.sleep, clock)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (httpx.Response(404), ConfigError, "--enable-metrics"),
        (httpx.Response(503), Unavailable, "HTTP 503"),
    ],
)
def test_a_server_without_metrics_is_told_in_one_sentence(
    answer: httpx.Response, error: type[Exception], text: str
) -> None:
    with served(answer) as server, pytest.raises(error, match=text):
        server.metrics()


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_a_local_model_and_a_card_measured_before_give_both_ceilings(model_folder: Path) -> None:
    identity = ServerIdentity(kind="vllm", model="qwen", details={"root": str(model_folder)})
    known = find_bounds(URL, identity, list_gpus=lambda: [CARD], known_gpu=lambda gpu: H200)
    assert known.missing == ()
    assert known.ceilings == H200
    assert known.weight_bits == pytest.approx(16)


def test_what_is_not_known_is_said_and_nothing_is_measured() -> None:
    identity = ServerIdentity(kind="vllm", model="someone/else", details={})
    other = replace(CARD, name="NVIDIA Unheard-of")
    known = find_bounds(URL, identity, list_gpus=lambda: [other], known_gpu=lambda gpu: None)
    assert (known.costs, known.ceilings) == (None, None)
    assert "--model-config" in known.missing[0]
    assert "nobody has measured" in known.missing[1]
    on_cpu = find_bounds(URL, identity, list_gpus=list, known_memory=lambda: None)
    assert "nobody has measured" in on_cpu.missing[1]


def test_a_card_that_nobody_measured_has_its_data_sheets_ceilings(model_folder: Path) -> None:
    identity = ServerIdentity(kind="vllm", model=str(model_folder), details={})
    here = find_bounds(URL, identity, list_gpus=lambda: [CARD], known_gpu=lambda gpu: None)
    there = find_bounds("http://10.0.0.9:8000", identity, card_name="h200", devices=2)
    assert here.ceilings is not None
    assert there.ceilings is not None
    assert here.ceilings.read is not None
    assert there.ceilings.read == 2 * here.ceilings.read
    assert "data sheet" in here.ceilings.device
    assert here.ceilings.fp8_product
    with pytest.raises(ConfigError):
        find_bounds("http://10.0.0.9:8000", identity, card_name="a toaster")


def test_given_rates_are_enough_for_another_machine(model_folder: Path) -> None:
    identity = ServerIdentity(kind="sglang", model="qwen", details={})
    given = GivenRates(read=1e12, product=1e14)
    known = find_bounds("http://10.0.0.9:30000", identity, model_config=model_folder, given=given, devices=2)
    assert known.ceilings is not None
    assert (known.ceilings.read, known.ceilings.product) == (2e12, 2e14)
