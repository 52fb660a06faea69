"""What recorded events come to: walls, busy time, gaps and ops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from firsttoken.traces.chrome import read_chrome
from firsttoken.traces.op_names import op_name
from firsttoken.traces.summary import summarise
from firsttoken.traces.trace import MARK, Event, Trace

# The host queues step i at 100 i; the device begins it 50 later.
STEPS = [(0.0, 90.0), (100.0, 190.0), (200.0, 290.0)]


def device_step(i: int, *, first: float = 40, second: float = 30, pause: float = 0) -> list[Event]:
    begin = 100.0 * i + 50
    launched = 100.0 * i + 10
    return [
        Event(begin, begin + first, "matvec_kernel", launched),
        Event(begin + first + pause, begin + first + pause + second, "row_attention_kernel", launched),
    ]


def gpu_trace(*events: Event) -> Trace:
    return Trace(STEPS, sorted(events, key=lambda event: event.start), on_gpu=True)


def test_a_step_lasts_from_its_first_kernel_to_the_first_of_the_next() -> None:
    summary = summarise(gpu_trace(*device_step(0), *device_step(1), *device_step(2)))
    assert summary is not None
    assert summary.steps == 2
    assert summary.walls == [100, 100]
    assert summary.busy == 140
    assert {op.name: (op.calls, op.total, op.own) for op in summary.ops} == {
        "products": (2, 80, 80),
        "attention": (2, 60, 60),
    }


def test_gaps_are_told_apart_by_whether_a_step_ends_in_them() -> None:
    steps = [device_step(i, first=20, second=50, pause=25) for i in range(3)]
    summary = summarise(gpu_trace(*steps[0], *steps[1], *steps[2]))
    assert summary is not None
    assert summary.idle_within_steps == 50
    assert summary.idle_between_steps == 10
    assert (summary.long_gaps, summary.long_gap_time) == (2, 50)  # those over 20
    assert [(gap.after, gap.before, gap.times) for gap in summary.gaps] == [
        ("products", "attention", 2),
        ("attention", "products", 2),
    ]


def test_kernels_that_overlap_are_busy_once_and_the_earlier_one_owns_the_time() -> None:
    early = [Event(150, 210, "rows_dot_kernel", 110), Event(160, 240, "swiglu_kernel", 110)]  # launched early, waits
    inside = Event(165, 170, "rms_norm_kernel", 110)
    summary = summarise(gpu_trace(*early, inside, *device_step(2)))
    assert summary is not None
    assert summary.wall == 100
    assert summary.busy == 90
    assert sum(op.total for op in summary.ops) == 145
    assert [(op.name, op.own) for op in summary.ops] == [("products", 60), ("swiglu", 30), ("rms_norm", 0)]


def test_what_was_queued_before_the_marked_steps_is_left_out() -> None:
    before = [Event(-20, 30, "matvec_kernel", -30), Event(30, 45, "matvec_kernel")]
    summary = summarise(gpu_trace(*before, *device_step(0), *device_step(1), *device_step(2)))
    assert summary is not None
    assert summary.wall == 200
    assert summary.busy == 140


def test_a_step_that_queued_nothing_is_no_step_of_the_device() -> None:
    summary = summarise(gpu_trace(*device_step(0), *device_step(2)))
    assert summary is not None
    assert (summary.steps, summary.walls) == (1, [200])


def test_on_a_cpu_the_hosts_marks_are_the_steps() -> None:
    ops = [Event(10, 40, "aten::mm"), Event(120, 130, "aten::exp_"), Event(210, 220, "aten::mm")]
    summary = summarise(Trace(STEPS, ops, on_gpu=False))
    assert summary is not None
    assert summary.walls == [100, 100]
    assert {op.name: op.own for op in summary.ops} == {"products": 30, "aten::exp_": 10}


def test_less_than_two_steps_tell_nothing() -> None:
    assert summarise(Trace(STEPS[:1], [Event(10, 20, "aten::mm")], on_gpu=False)) is None
    assert summarise(gpu_trace(*device_step(1))) is None


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        ("matvec_kernel", "products"),
        ("quant_fixed_kernel", "products"),
        ("quant_pairs_kernel", "products"),
        ("pair_rows_kernel", "products"),
        ("nvjet_sm90_tst_128x64_64x8_2x1_v_bz_TNT", "products"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)", "products"),
        ("row_attention_kernel", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x128", "attention"),
        ("rope_cache_kernel", "rope and cache"),
        ("rms_norm_kernel", "rms_norm"),
        ("swiglu_kernel", "swiglu"),
        ("embedding_kernel", "embedding"),
        ("argmax_merge_kernel", "sampling"),
        ("draw_kernel", "sampling"),
        ("Memcpy DtoH (Device -> Pinned)", "copies"),
        ("Memset (Device)", "copies"),
        ("prepare_rows_kernel", "prepare_rows_kernel"),
        ("void at::native::vectorized_elementwise_kernel<4, X>(int, X)", "at::native::vectorized_elementwise_kernel"),
    ],
)
def test_kernels_go_by_the_op_that_they_do(kernel: str, op: str) -> None:
    assert op_name(kernel) == op


def entry(cat: str, name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 7} | more


def write(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(entries)}))
    return path


def test_kernels_of_a_graph_belong_to_the_step_that_launched_it(tmp_path: Path) -> None:
    trace = read_chrome(
        write(
            tmp_path / "trace.json",
            {"ph": "M", "name": "process_name", "pid": 0, "tid": "x", "args": {"name": "python"}},
            entry("user_annotation", f"{MARK} 1", 100, 90),
            entry("user_annotation", f"{MARK} 0", 0, 90),
            entry("user_annotation", "something else", 0, 500),
            entry("gpu_user_annotation", f"{MARK} 0", 50, 70),
            entry("cuda_runtime", "cudaGraphLaunch", 10, 5, args={"correlation": 3, "cbid": 311}),
            entry("cpu_op", "aten::copy_", 20, 5),
            entry("kernel", "swiglu_kernel", 70, 10, args={"correlation": 3, "grid": [1, 1, 1]}),
            entry("kernel", "matvec_kernel", 50, 20, tid="stream 7", args={"correlation": 3}),
            entry("gpu_memcpy", "Memcpy DtoH", 80, 1, args={"correlation": 4}),
        )
    )
    assert trace.steps == [(0, 90), (100, 190)]
    assert trace.on_gpu
    assert trace.events == [
        Event(50, 70, "matvec_kernel", 10),
        Event(70, 80, "swiglu_kernel", 10),
        Event(80, 81, "Memcpy DtoH", None),
    ]


def test_ops_within_ops_of_the_same_thread_are_not_counted_twice(tmp_path: Path) -> None:
    trace = read_chrome(
        write(
            tmp_path / "trace.json",
            entry("cpu_op", "aten::linear", 10, 20),
            entry("cpu_op", "aten::addmm", 10, 15),
            entry("cpu_op", "aten::copy_", 12, 3, tid=8),
            entry("cpu_op", "aten::exp_", 30, 5),
        )
    )
    assert not trace.on_gpu
    assert [event.name for event in trace.events] == ["aten::linear", "aten::copy_", "aten::exp_"]
