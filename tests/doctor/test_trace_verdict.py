"""What a trace comes to beside the ceilings, and the files that hold one."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from firsttoken.bench.roofline_judge import GivenRates
from firsttoken.cli.doctor_trace import trace as command
from firsttoken.doctor.trace.known import trace_ceilings
from firsttoken.doctor.trace.open import open_trace
from firsttoken.doctor.trace.verdict import StepWork, TraceFinding, judge_trace
from firsttoken.errors import ConfigError
from firsttoken.machine.gpu import Gpu
from firsttoken.traces.trace import Event, Trace
from tests.doctor.scripted_metrics import COSTS, H200
from tests.qwen3_4b import CONFIG
from tests.traces.nsight_file import NsightFile

# One decode step of Qwen3-4B as it was recorded on an H200: own µs of products and of attention, and its wall.
PRODUCTS, ATTENTION, WALL = 1880.9, 366.8, 2278.0


def steady(products: float = PRODUCTS, attention: float = ATTENTION, wall: float = WALL, steps: int = 3) -> Trace:
    events, spans = [], []
    for i in range(steps):
        begin = i * wall
        spans.append((begin - 100, begin - 50))
        events.append(Event(begin, begin + products, "matvec_kernel", begin - 90))
        events.append(Event(begin + products, begin + products + attention, "row_attention_kernel", begin - 80))
    return Trace(spans, events, on_gpu=True, device_name="NVIDIA H200")


def judged(trace: Trace, context: float = 634) -> TraceFinding:
    return judge_trace(trace, StepWork(costs=COSTS, tokens=1, context=context), replace(H200, read=4.38e12))


def test_a_recorded_decode_step_is_near_its_ceiling() -> None:
    found = judged(steady())
    assert found.idle_share == pytest.approx(1 - (PRODUCTS + ATTENTION) / WALL)
    assert found.shares()["products"] == pytest.approx(COSTS.weight_bytes / 4.38e12 / (PRODUCTS * 1e-6))
    assert found.step_share == pytest.approx(0.815, abs=0.002)  # what the profile's own page says
    assert "products took 83 %" in found.verdict
    assert "near the ceiling" in found.advice


def test_slow_kernels_are_told_by_their_share_of_the_ceiling() -> None:
    found = judged(steady(products=4000, wall=4500))
    assert "46 % of what its bytes and FLOPs allow" in found.advice


def test_gaps_between_steps_are_the_hosts() -> None:
    found = judged(steady(wall=6000))
    assert "did nothing in 63 % of the time" in found.verdict
    assert "between attention and products: queue the next step earlier" in found.advice


def test_gaps_within_steps_want_a_graph() -> None:
    events = [Event(10.0 * i, 10.0 * i + 4, "gemm_kernel", 10.0 * i - 5) for i in range(40)]
    found = judge_trace(Trace([(-10, 150), (180, 350), (380, 390)], events, on_gpu=True))
    assert found.marked
    assert "launch the step as a CUDA graph" in found.advice


def test_a_prompts_products_are_held_to_arithmetic() -> None:
    least = StepWork(costs=COSTS, tokens=4096).least("products", H200)
    assert least == pytest.approx(0.0376, abs=0.0005)  # 43.5 ms were measured through the library


def test_steps_that_nobody_marked_are_told_as_a_whole_without_shares() -> None:
    found = judged(replace(steady(), steps=[]))
    assert not found.marked
    assert found.shares() == {}
    assert found.as_json()["steps"] is None


def chrome(path: Path, packed: bool = False) -> Path:
    events: list[dict[str, Any]] = []
    for i in range(3):
        at = 100.0 * i
        step = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "ts": at, "dur": 90.0}
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": at + 5, "dur": 3.0}
        kernel = {"ph": "X", "cat": "kernel", "name": "void cutlass::Kernel<x>(args)", "ts": at + 20, "dur": 60.0}
        marker = {"device": 0, "stream": 7, "correlation": i, "grid": [1, 1, 1]}
        events += [step, launch | {"args": {"correlation": i}}, kernel | {"args": marker}]
        events.append({"ph": "X", "cat": "Trace", "name": "odd", "ts": at, "dur": 1.0, "args": {"device": "a word"}})
    content = json.dumps({"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_torch_trace_with_torchs_own_steps_is_read_packed_or_not(tmp_path: Path, packed: bool) -> None:
    found = judge_trace(open_trace(chrome(tmp_path / "a.pt.trace.json", packed)))
    assert (found.summary.steps, found.trace.device_name) == (2, "NVIDIA H200")
    assert found.idle_share == pytest.approx(0.4)
    assert found.summary.ops[0].name == "products"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", b"{}", "neither a torch"),
        ("a.json", b"\x1f\x8b but not packed", "neither a torch"),
        ("a.sqlite", b"SQLite format 3\x00", "neither a torch"),
        ("a.nsys-rep", b"", "nsys export"),
        ("a.json", b'{"traceEvents": []}', "shows nothing that ran"),
        ("missing.json", None, "no trace"),
    ],
)
def test_a_file_without_a_trace_is_refused_in_one_sentence(
    tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=says) as refused:
        open_trace(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_ceilings_are_given_or_measured_here_or_the_data_sheets() -> None:
    gpu = Gpu(index=0, name="NVIDIA H200", memory_total=1, memory_free=1, driver="580")
    nothing, given = GivenRates(), GivenRates(read=1e12)
    assert trace_ceilings("NVIDIA H200", None, nothing, lambda: [gpu], lambda _: H200) == H200
    sheet = trace_ceilings("NVIDIA H200", None, nothing, list)
    assert sheet is not None
    assert sheet.read == 4.8e12
    assert trace_ceilings("", "h200", nothing, list) == sheet
    assert trace_ceilings("", None, nothing, list) is None
    only_read = trace_ceilings("", None, given, list)
    assert only_read is not None
    assert (only_read.read, only_read.product) == (1e12, None)


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    file = NsightFile()
    for i in range(3):
        at = 3000.0 * i + 1000
        file.ranges.append((at, at + 100, f"my step {i}"))
        file.launches.append((at + 5, i))
        file.kernels.append((at + 50, at + 2450, "void gemvx::kernel<int>(args)", i, 0))
    path = str(file.write(tmp_path / "a.sqlite"))
    options = ["--step", "my step", "--model-config", str(tmp_path), "--memory-gb-s", "4410"]
    printed = CliRunner().invoke(command, [path, *options], catch_exceptions=False)
    assert printed.exit_code == 0
    assert "2 steps, on NVIDIA H200" in printed.output
    assert "did nothing in 20 % of the time" in printed.output
    told = json.loads(CliRunner().invoke(command, [path, *options, "--json"], catch_exceptions=False).output)
    assert told["steps"] == 2
    assert told["ops"][0]["op"] == "products"
    assert told["ops"][0]["share_of_ceiling"] == pytest.approx(COSTS.weight_bytes / 4.41e12 / 0.0024, rel=0.01)
