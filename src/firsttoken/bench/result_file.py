"""A run on disk: `run.json`, and `run.requests.jsonl` with one raw request a line, written as they finish."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

import msgspec

from firsttoken.bench.records import (
    RequestRecord,
    RunResult,
    decode_record,
    decode_result,
    encode_record,
    encode_result,
)
from firsttoken.errors import ConfigError


def requests_path(path: Path) -> Path:
    """The raw records' file of a result file."""
    return path.with_name(path.stem + ".requests.jsonl")


def save_result(path: Path, result: RunResult) -> None:
    """Writes the result's JSON; a crash in the middle leaves the old file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(encode_result(result))
    os.replace(fresh, path)


def load_result(path: Path) -> RunResult:
    """A result with its raw records, as far as they were written. Raises ConfigError in one sentence."""
    try:
        result = decode_result(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(
            f"there is no result file {path}: write one with `firsttoken bench run --out {path}`"
        ) from None
    except ConfigError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    by_name = {scenario.name: scenario for scenario in result.scenarios}
    for record in load_records(requests_path(path)):
        if record.scenario in by_name:
            by_name[record.scenario].records.append(record)
    return result


def load_records(path: Path) -> list[RequestRecord]:
    """Every whole line; the last one may be cut short by a crash and is then left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines()
    records: list[RequestRecord] = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(decode_record(line))
        except msgspec.MsgspecError as error:
            if number < len(lines):
                raise ConfigError(f"line {number} of {path} is not a benchmark's request: {error}") from None
    return records


class RecordWriter:
    """Appends records to the JSONL file, each flushed to the operating system: a killed run loses none."""

    def __init__(self, path: Path, keep: list[RequestRecord] | None = None) -> None:
        """Starts the file over with the records to `keep` (completed scenarios' on a resumed run)."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".new")
        fresh.write_bytes(b"".join(encode_record(record) for record in keep or []))
        os.replace(fresh, path)
        self._file = path.open("ab", buffering=0)

    def append(self, record: RequestRecord) -> None:
        self._file.write(encode_record(record))

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
