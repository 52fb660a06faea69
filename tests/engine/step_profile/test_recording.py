"""When steps are recorded, which of them count, and what is kept of a real engine."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from tests.builders import tiny_model_folder
from tests.engine.bare_worker import Worker, listen, request
from tests.engine.fake_engine import FakeEngine, info

from firsttoken.config import EngineConfig
from firsttoken.engine.channel import Channel
from firsttoken.engine.loader import load
from firsttoken.engine.process import EngineLoop
from firsttoken.engine.step_profile.keep import keep
from firsttoken.engine.step_profile.recorder import TorchRecorder
from firsttoken.engine.step_profile.recording import LEAD, UNMARKED, Recorded, StepRecording
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.types import EngineInfo, GenerateRequest, SamplingParams
from firsttoken.wire import StartProfile, Submit


class FakeRecorder:
    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.calls: list[str] = []

    def start(self) -> None:
        if self.fault == "start":
            raise RuntimeError("no permission")
        self.calls.append("start")

    def mark(self, step: int) -> AbstractContextManager[object]:
        self.calls.append(f"mark {step}")
        return nullcontext()

    def stop(self) -> Callable[[Path], None]:
        if self.fault == "stop":
            raise RuntimeError("lost")
        self.calls.append("stop")
        return lambda path: None


class Bench:
    """A recording of a fake engine whose clock goes on a second a step."""

    def __init__(self, steps: int, fault: str = "") -> None:
        self.engine = FakeEngine()
        self.recorder = FakeRecorder(fault)
        self.kept: list[Recorded] = []
        self.recording = StepRecording(
            steps, lambda: self.recorder, self.kept.append, clock=lambda: float(self.engine.steps)
        )

    def burst(self, tokens: int) -> None:
        """One request of so many tokens, until nothing is left to do."""
        self.engine.add(request(f"burst {self.engine.steps}", 10, max_tokens=tokens))
        while self.engine.has_work:
            if self.recording.done:
                self.engine.step()
            else:
                assert len(self.recording.step(self.engine)) == 1


def test_a_burst_settles_before_its_steps_are_marked_one_more_than_asked_for() -> None:
    bench = Bench(steps=3)
    bench.burst(LEAD + 1 + UNMARKED + 50)
    assert bench.recorder.calls == ["start", "mark 0", "mark 1", "mark 2", "mark 3", "stop"]
    (recorded,) = bench.kept
    assert len(recorded.plans) == 4
    assert recorded.plain_ms == 1000
    assert bench.recording.done


def test_short_bursts_are_passed_over_until_one_is_long_enough() -> None:
    bench = Bench(steps=3)
    for _ in range(3):
        bench.burst(LEAD)
    assert bench.recorder.calls == []
    bench.burst(LEAD + 1 + UNMARKED + 1)  # one step is none: nothing says where it ends
    assert bench.recorder.calls == ["start", "mark 0", "stop"]
    assert not bench.kept
    assert not bench.recording.done
    bench.burst(LEAD + 1 + UNMARKED + 3)  # less than asked for is kept
    (recorded,) = bench.kept
    assert len(recorded.plans) == 3
    assert bench.recording.done


def test_a_profiler_that_may_not_record_only_ends_the_recording() -> None:
    for fault in ("start", "stop"):
        bench = Bench(steps=3, fault=fault)
        bench.burst(LEAD + 100)
        assert bench.recording.done
        assert bench.engine.steps == LEAD + 100
        assert not bench.kept


def test_a_worker_starts_one_recording_at_a_time_and_answers_go_on(tmp_path: Path) -> None:
    recorders: list[FakeRecorder] = []
    kept: list[Recorded] = []

    def new_recorder() -> FakeRecorder:
        recorders.append(FakeRecorder())
        return recorders[-1]

    engine, channel = FakeEngine(), Channel(listen(tmp_path / "engine"))
    loop = EngineLoop(engine, channel, info(), new_recording=lambda: StepRecording(2, new_recorder, kept.append))
    worker = Worker(tmp_path / "engine")
    loop.turn(0)
    for i in range(2):
        worker.send(StartProfile(), StartProfile(), Submit(request(f"a{i}", 10, max_tokens=60)))
        for _ in range(62):
            loop.turn(0)
        assert len(kept) == len(recorders) == i + 1
    assert engine.steps == 120
    worker.sock.close()
    channel.close()


def test_without_leave_a_worker_cannot_start_one(tmp_path: Path) -> None:
    channel = Channel(listen(tmp_path / "engine"))
    loop = EngineLoop(FakeEngine(), channel, info())
    worker = Worker(tmp_path / "engine")
    loop.turn(0)
    worker.send(StartProfile(), Submit(request("a", 10, max_tokens=2)))
    for _ in range(4):
        loop.turn(0)
    assert [type(message).__name__ for message in worker.waiting()] == ["Ready", "Accepted", "Step", "Step"]
    worker.sock.close()
    channel.close()


def test_a_real_engines_steps_become_a_trace_and_a_page(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path / "model")
    config = EngineConfig(
        model="tiny",
        path=str(folder),
        device="cpu",
        dtype="float32",
        kv_cache_memory=1 << 20,
        max_model_len=64,
        profile_steps=4,
        profile_dir=str(tmp_path / "new" / "profiles"),
    )
    loaded = load(config, lambda phase, fraction: None)
    kept: list[Recorded] = []
    recording = StepRecording(4, lambda: TorchRecorder(on_gpu=False), kept.append)
    for i in range(2):
        sampling = SamplingParams(max_tokens=LEAD + UNMARKED + 12, ignore_eos=True)
        loaded.engine.add(GenerateRequest(request_id=str(i), prompt_token_ids=[5, 6, 7], sampling=sampling))
    while not recording.done:
        recording.step(loaded.engine)
    while loaded.engine.has_work:
        loaded.engine.step()
    loaded.runner.close()
    (recorded,) = kept

    def ceilings(info: EngineInfo) -> Ceilings:
        return Ceilings(info.device_name, read=20e9)

    page = keep(recorded, config, loaded.engine.info, ceilings)
    text = page.read_text()
    assert text.startswith("# 4 steps of tiny\n")
    assert "A step ran 2 sequences and 2 new tokens" in text
    assert " GB/s | 20 GB/s | " in text
    assert "| embedding |" in text
    assert "compiled CPU kernels" in text
    (trace,) = page.parent.glob("*.trace.json.gz")
    assert trace.name in text
    names = [entry.get("name") for entry in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]]
    assert names.count("firsttoken step 4") == 1
    assert sorted(path.name for path in page.parent.iterdir()) == sorted([page.name, trace.name])
