"""The measured memory ceiling and its cache. Nothing here asserts a speed: only that reads happen and are kept."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date
from pathlib import Path

import pytest

from firsttoken.machine.ceilings import MemoryCeiling, known_memory_ceiling, measure_memory, memory_ceiling

MIB = 1024 * 1024


def test_a_measurement_tells_bandwidth_threads_and_date() -> None:
    ceiling = measure_memory(threads=2, bytes_a_thread=4 * MIB, rounds=2)
    assert ceiling.threads == 2
    assert 1e8 < ceiling.bytes_per_second < 1e14
    assert len(ceiling.measured_on) == len("2026-01-31")


def test_the_decode_ceiling_is_bandwidth_over_the_bytes_of_a_token() -> None:
    assert MemoryCeiling(20e9, 2, "2026-01-31").decode_ceiling(100e6) == pytest.approx(200)


def remember(cache: Path, bytes_per_second: float, measured_on: str, threads: int) -> None:
    kept = MemoryCeiling(bytes_per_second, threads, measured_on)
    cache.write_text(json.dumps(asdict(kept)))


def test_the_best_reading_of_the_month_is_remembered(tmp_path: Path) -> None:
    cache = tmp_path / "new" / "ceiling.json"
    threads = memory_ceiling(cache).threads
    remember(cache, 1e18, "2026-01-31", threads)
    assert memory_ceiling(cache, date(2026, 2, 20)).bytes_per_second == 1e18
    assert memory_ceiling(cache, date(2026, 3, 20)).bytes_per_second < 1e18


def test_a_better_reading_replaces_a_worse_one(tmp_path: Path) -> None:
    cache = tmp_path / "ceiling.json"
    remember(cache, 1.0, date.today().isoformat(), memory_ceiling(cache).threads)
    better = memory_ceiling(cache)
    assert better.bytes_per_second > 1.0
    assert json.loads(cache.read_text())["bytes_per_second"] == better.bytes_per_second


@pytest.mark.parametrize("content", ["", "{", "[]", '{"bytes_per_second": 0, "threads": 1, "measured_on": "x"}'])
def test_a_damaged_cache_is_measured_again(tmp_path: Path, content: str) -> None:
    cache = tmp_path / "ceiling.json"
    cache.write_text(content)
    assert memory_ceiling(cache).bytes_per_second > 0
    assert json.loads(cache.read_text())["bytes_per_second"] > 0


def test_a_reading_with_another_number_of_cores_is_not_believed(tmp_path: Path) -> None:
    cache = tmp_path / "ceiling.json"
    remember(cache, 1e18, date.today().isoformat(), threads=1000)
    assert memory_ceiling(cache).bytes_per_second < 1e18


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert memory_ceiling(tmp_path / "file" / "ceiling.json").bytes_per_second > 0


def test_what_is_remembered_can_be_read_without_measuring(tmp_path: Path) -> None:
    cache = tmp_path / "ceiling.json"
    assert known_memory_ceiling(cache) is None
    remember(cache, 1e10, "2026-01-31", threads=2)
    assert known_memory_ceiling(cache, date(2026, 2, 20)) == MemoryCeiling(1e10, 2, "2026-01-31")
    assert known_memory_ceiling(cache, date(2026, 3, 20)) is None
