"""A trace from a file of whatever profiler wrote it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from firsttoken.errors import ConfigError
from firsttoken.traces.chrome import read_chrome
from firsttoken.traces.nsight import read_nsight
from firsttoken.traces.trace import STEP_MARKS, Trace

_SQLITE = b"SQLite format 3\x00"
_REPORTS = (".nsys-rep", ".qdrep")


def open_trace(path: Path, marks: Sequence[str] = STEP_MARKS) -> Trace:
    """torch's JSON, packed or not, or an sqlite export of Nsight Systems. Raises ConfigError in one sentence."""
    if path.suffix in _REPORTS:
        raise ConfigError(
            f"{path} is Nsight's own report: export it with `nsys export --type sqlite {path.name}` first."
        )
    try:
        with path.open("rb") as file:
            nsight = file.read(len(_SQLITE)) == _SQLITE
        trace = read_nsight(path, marks) if nsight else read_chrome(path, marks)
    except FileNotFoundError:
        raise ConfigError(f"There is no trace {path}.") from None
    except (OSError, EOFError, msgspec.DecodeError, sqlite3.DatabaseError) as error:
        raise ConfigError(
            f"{path} is neither a torch profiler's trace nor an sqlite export of Nsight Systems ({error})."
        ) from None
    if not trace.events:
        raise ConfigError(
            f"{path} shows nothing that ran: record it with CUDA activities, or `nsys profile -t cuda,nvtx`."
        )
    return trace
