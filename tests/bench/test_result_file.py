from __future__ import annotations

from pathlib import Path

import pytest

from firsttoken.bench.records import Chunk, LoadSpec, RequestRecord, RunResult, ScenarioResult
from firsttoken.bench.result_file import RecordWriter, load_records, load_result, requests_path, save_result
from firsttoken.errors import ConfigError


def record(number: int, scenario: str = "a") -> RequestRecord:
    chunks = [Chunk(1.5, "快", 1), Chunk(1.6, "\n", 2)]
    return RequestRecord(id=str(number), scenario=scenario, phase="measured", stream=0, sent=1.25, chunks=chunks)


def run(*names: str) -> RunResult:
    return RunResult(
        model="m", scenarios=[ScenarioResult(name=n, scenario=n, load=LoadSpec(concurrency=1)) for n in names]
    )


def test_a_run_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.json"
    result = run("a", "b")
    save_result(path, result)
    with RecordWriter(requests_path(path)) as writer:
        for each in (record(1), record(2, "b"), record(3)):
            writer.append(each)
    found = load_result(path)
    assert found.scenarios[0].records == [record(1), record(3)]
    assert found.scenarios[1].records == [record(2, "b")]
    assert found.model == "m"
    assert b"records" not in b"".join(line for line in path.read_bytes().splitlines() if b'"records": []' not in line)


def test_records_are_on_disk_as_they_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RecordWriter(path) as writer:
        writer.append(record(1))
        assert load_records(path) == [record(1)]
        assert path.read_bytes().count(b"\n") == 1


def test_a_line_cut_short_by_a_crash_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RecordWriter(path, keep=[record(1)]) as writer:
        writer.append(record(2))
    path.write_bytes(path.read_bytes()[:-9])
    assert load_records(path) == [record(1)]


def test_a_broken_line_in_the_middle_is_told(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"id": 1}\n{"id": 2}\n')
    with pytest.raises(ConfigError, match="line 1 of"):
        load_records(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not a result"),
        (b'{"scenarios": 1}', "not a result"),
        (b'{"schema": "firsttoken.bench/99"}', "schema is"),
    ],
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as error:
        load_result(path)
    assert str(path) in str(error.value)


def test_a_missing_file_is_told_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="firsttoken bench run --out"):
        load_result(tmp_path / "none.json")
