"""An sqlite export of Nsight Systems as a trace."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.traces.nsight_file import NsightFile

from firsttoken.traces.nsight import read_nsight
from firsttoken.traces.summary import summarise, summarise_whole
from firsttoken.traces.trace import STEP_MARKS, WHOLE_GRAPH


def three_steps() -> NsightFile:
    """Each launches a product and an attention of 40 and 30 µs, with 30 µs of nothing after them."""
    file = NsightFile()
    for i in range(3):
        at = 1000 + 100.0 * i
        file.ranges.append((at, at + 90, f"execute_context_0(0)_generation_{i}({i})"))
        file.launches += [(at + 5, 10 * i), (at + 8, 10 * i + 1)]
        file.kernels.append((at + 50, at + 90, "void gemvx::kernel<int, __nv_bfloat16>(args)", 10 * i, 0))
        file.kernels.append((at + 90, at + 120, "flash_fwd_splitkv_kernel<traits>", 10 * i + 1, 0))
    return file


def test_kernels_belong_to_the_range_in_which_they_were_launched(tmp_path: Path) -> None:
    trace = read_nsight(three_steps().write(tmp_path / "a.sqlite"), STEP_MARKS)
    summary = summarise(trace)
    assert (trace.device_name, trace.devices, trace.on_gpu) == ("NVIDIA H200", 1, True)
    assert summary is not None
    assert summary.walls == pytest.approx([100, 100])
    assert {op.name: (op.calls, round(op.own)) for op in summary.ops} == {"products": (2, 80), "attention": (2, 60)}
    assert summary.idle_between_steps == pytest.approx(60)


def test_copies_and_graphs_that_were_recorded_as_a_whole_are_there_too(tmp_path: Path) -> None:
    file = NsightFile(copies=[(0, 5, 1)], graphs=[(10, 90, 2)], launches=[(-3, 1), (-2, 2)])
    trace = read_nsight(file.write(tmp_path / "a.sqlite"))
    assert [event.name for event in trace.events] == ["Memcpy", WHOLE_GRAPH]
    summary = summarise_whole(trace)
    assert summary is not None
    assert [summary.wall, summary.busy] == pytest.approx([90, 85])


def test_the_busiest_of_several_devices_is_looked_at(tmp_path: Path) -> None:
    file = NsightFile(kernels=[(0, 10, "gemm", 1, 0), (0, 50, "gemm", 2, 1), (60, 70, "gemm", 3, 1)])
    trace = read_nsight(file.write(tmp_path / "a.sqlite"))
    assert trace.devices == 2
    assert [event.device for event in trace.events] == [1, 1]


def test_without_steps_long_pauses_are_no_gaps(tmp_path: Path) -> None:
    file = NsightFile(kernels=[(0, 10, "gemm", 1, 0), (15, 20, "gemm", 2, 0), (200_000, 200_010, "gemm", 3, 0)])
    summary = summarise_whole(read_nsight(file.write(tmp_path / "a.sqlite")))
    assert summary is not None
    assert [summary.wall, summary.busy, summary.paused] == pytest.approx([30, 25, 199_980])


def test_a_file_of_another_kind_raises(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").write_bytes(b"SQLite format 3\x00 and then nothing of it")
    with pytest.raises(sqlite3.DatabaseError):
        read_nsight(tmp_path / "a.sqlite")
