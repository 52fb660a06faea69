"""A session on disk: the plan, then one line for each thing that was measured, in order.

A session is a program whose only inputs are its plan and its measurements. It resumes by running again from the start
while the journal answers in the measurements' place; at its end the program goes on by measuring. So a session that
was killed at any point reaches the verdicts that it would have reached.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from firsttoken.errors import ConfigError

SCHEMA = "firsttoken.tune/1"


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """What a session is about; a journal is resumed under the same one alone."""

    schema: str = SCHEMA
    version: str  # of firsttoken: another one may decide otherwise
    engine: str
    command: str  # the template
    model: str
    workload: dict[str, Any]
    objective: Literal["tpot", "ttft_p99", "throughput", "goodput"]
    slo: dict[str, float]
    slo_share: float
    baseline: dict[str, Any]
    knobs: dict[str, list[Any]]  # what is tried
    budget: float  # seconds
    seed: int


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    plan: Plan | None = None
    kind: str = ""
    ask: dict[str, Any] = {}
    answer: dict[str, Any] = {}


class Journal:
    """Answers from disk what was measured before, and writes down what is measured now."""

    def __init__(self, path: Path, plan: Plan, *, resume: bool) -> None:
        """Starts a file, or reads one that was broken off. Raises ConfigError where the file does not suit."""
        self._path = path
        self._lines: list[_Line] = []
        self._at = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(path.with_suffix(".lock"))
        try:
            self._open(plan, resume)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, plan: Plan, resume: bool) -> None:
        path = self._path
        plan = msgspec.json.decode(msgspec.json.encode(plan), type=Plan)  # as it will be read
        if path.exists():
            if not resume:
                raise ConfigError(f"{path.parent} holds a session: add --resume to go on, or choose another --out.")
            self._lines = _read(path, plan)
        elif resume:
            raise ConfigError(f"{path.parent} holds no session to resume: leave --resume out to begin one.")
        if not self._lines:
            self._lines = [_Line(plan=plan)]
        fresh = path.with_name(path.name + ".new")  # without the line that a crash may have cut
        fresh.write_bytes(b"".join(map(_encode, self._lines)))
        os.replace(fresh, path)
        self._at = 1
        self._file = path.open("ab", buffering=0)

    @property
    def known(self) -> int:
        """Answers that the file still holds."""
        return len(self._lines) - self._at

    def step(self, kind: str, ask: Mapping[str, Any], do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The answer to `ask`: from the file, else of `do`, which is then on disk. Raises ConfigError.

        The answer has been through JSON either way.
        """
        asked = msgspec.json.decode(msgspec.json.encode(ask))
        if self._at < len(self._lines):
            line = self._lines[self._at]
            if (line.kind, line.ask) != (kind, asked):
                raise ConfigError(
                    f"line {self._at + 1} of {self._path} is not what this session asks for: it was changed, or "
                    "another version wrote it; begin again in another --out."
                )
            self._at += 1
            return line.answer
        data = _encode(_Line(kind=kind, ask=asked, answer=do()))
        self._file.write(data)  # unbuffered: what is written outlives this process, though not the machine's power
        line = msgspec.json.decode(data, type=_Line)
        self._lines.append(line)
        self._at += 1
        return line.answer

    def close(self) -> None:
        self._file.close()
        self._lock.close()


def _locked(path: Path) -> IO[bytes]:
    """A file that this process alone holds, however long it lives. Raises ConfigError where another one does."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ConfigError(
            f"another `firsttoken tune` works in {path.parent}: wait for it, or choose another --out."
        ) from None
    return file


def seed_of(path: Path) -> int:
    """The seed of a session that is to be resumed. Raises ConfigError where there is none."""
    try:
        with path.open("rb") as file:
            plan = msgspec.json.decode(file.readline(), type=_Line).plan
    except (OSError, msgspec.MsgspecError):
        plan = None
    if plan is None:
        raise ConfigError(f"{path.parent} holds no session to resume: leave --resume out to begin one.")
    return plan.seed


def _encode(line: _Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def _read(path: Path, plan: Plan) -> list[_Line]:
    """Every whole line; the last one may be cut short."""
    lines: list[_Line] = []
    rows = path.read_bytes().split(b"\n")
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        try:
            lines.append(msgspec.json.decode(row, type=_Line))
        except msgspec.MsgspecError as error:
            if number < len(rows):  # a whole line ends with a newline, so the last row is empty or cut
                raise ConfigError(f"line {number} of {path} is not a session's: {error}.") from None
    theirs = lines[0].plan if lines else None
    if lines and theirs is None:
        raise ConfigError(f"{path} does not begin with a session's plan.")
    if theirs is not None and theirs != plan:
        names = [name for name in plan.__struct_fields__ if getattr(plan, name) != getattr(theirs, name)]
        raise ConfigError(
            f"{path.parent} holds a session with another {', '.join(names)}: give the same flags to resume it, or "
            "choose another --out."
        )
    return lines
