"""`firsttoken bench ab`: two server commands measured in pairs, in random order, each time on a fresh server.

A folder holds the plan (`ab.json`) and one result a side of each pair; a broken-off experiment goes on from there. A
pair of which only one side was measured is measured again whole: its sides would lie too far apart in time.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from firsttoken.bench.compare import MARGIN, Comparison, compare_pairs
from firsttoken.bench.events import Event, Note
from firsttoken.bench.key_hiding import hide_keys
from firsttoken.bench.records import RunResult
from firsttoken.bench.result_file import load_result, requests_path
from firsttoken.bench.run import BenchSpec, Judge, Monitor, run_scenarios
from firsttoken.errors import ConfigError

SCHEMA = "firsttoken.bench.ab/1"
_PLAN = "ab.json"
Side = Literal["a", "b"]

Measure = Callable[[str, int, Path], RunResult]
"""Launches a command, measures with prompts drawn from a seed, keeps the result at a path, stops the server."""


class Experiment(msgspec.Struct, kw_only=True, frozen=True):
    """What is compared; the same in every session that adds to it."""

    schema: str = SCHEMA
    a: str  # server commands; on disk and on screen without their keys
    b: str
    pairs: int = 8
    seed: int = 0  # of the order, and of the prompts: pair i draws its own from it, the same for both sides
    margin: float = MARGIN  # within which the sides count as the same

    def shown(self) -> Experiment:
        """Without keys, as it is written and told."""
        return msgspec.structs.replace(self, a=hide_keys(self.a), b=hide_keys(self.b))

    def order(self) -> list[tuple[Side, Side]]:
        """Which side goes first in each pair: either one in half of the pairs, in random order."""
        half: list[tuple[Side, Side]] = [("a", "b"), ("b", "a")]
        draw = random.Random(self.seed)
        draw.shuffle(half)  # an odd pair out belongs to either
        firsts = [half[i % 2] for i in range(self.pairs)]
        draw.shuffle(firsts)
        return firsts


def open_experiment(
    folder: Path, a: str, b: str, pairs: int = 8, seed: int | None = None, margin: float = MARGIN
) -> Experiment:
    """The experiment that `folder` holds, or a new one written into it. Without a seed, the folder's or a random one.

    Raises ConfigError where the folder holds another experiment.
    """
    if pairs < 1:
        raise ConfigError("An experiment needs one pair at least; eight find 3 % where runs vary by 1 %.")
    known = load_experiment(folder) if (folder / _PLAN).exists() else None
    if seed is None:
        seed = known.seed if known is not None else random.SystemRandom().getrandbits(53)
    wanted = Experiment(a=a, b=b, pairs=pairs, seed=seed, margin=margin)
    if known is not None:
        names = [name for name in ("a", "b", "pairs", "seed") if getattr(known, name) != getattr(wanted.shown(), name)]
        if names:
            theirs = ", ".join(f"{name} {getattr(known, name)!r}" for name in names)
            raise ConfigError(f"{folder} holds another experiment ({theirs}): choose another --out.")
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / _PLAN, msgspec.json.format(msgspec.json.encode(wanted.shown()), indent=1) + b"\n")
    return wanted


def run_ab(
    experiment: Experiment, folder: Path, measure: Measure, tell: Callable[[Event], None] = lambda event: None
) -> Comparison:
    """Measures the pairs that `folder` (see `open_experiment`) does not hold yet, and compares all of them.

    What `measure` raises ends the session; the pairs done until then are kept.
    """
    done = sum(_is_done(folder, number) for number in range(1, experiment.pairs + 1))
    if done:
        tell(Note(f"{done} of {experiment.pairs} pairs are done already"))
    for number, sides in enumerate(experiment.order(), 1):
        if _is_done(folder, number):
            continue
        for side in sides:
            _forget(_result_path(folder, number, side))
        for side in sides:
            command = experiment.a if side == "a" else experiment.b
            tell(Note(f"pair {number} of {experiment.pairs}, {side.upper()}: {hide_keys(command)}"))
            measure(command, _prompt_seed(experiment.seed, number), _result_path(folder, number, side))
        _write(_mark(folder, number), f"{' '.join(sides)}\n".encode())
    return compare_folder(folder)


def compare_folder(folder: Path) -> Comparison:
    """The comparison of the pairs that a folder holds so far. Raises ConfigError where it holds none."""
    experiment = load_experiment(folder)
    pairs = load_pairs(folder)
    if not pairs:
        raise ConfigError(f"{folder} holds no finished pair yet: go on with the `firsttoken bench ab` that began it.")
    found = compare_pairs(pairs, margin=experiment.margin)
    notes = [f"A: {experiment.a}", f"B: {experiment.b}"]
    if len(pairs) < experiment.pairs:
        notes.append(f"{len(pairs)} of {experiment.pairs} pairs are done.")
    return msgspec.structs.replace(found, notes=notes + found.notes)


def load_pairs(folder: Path) -> list[tuple[RunResult, RunResult]]:
    """(A, B) of every pair of which both sides are whole, in order."""
    pairs = load_experiment(folder).pairs
    return [
        (load_result(_result_path(folder, number, "a")), load_result(_result_path(folder, number, "b")))
        for number in range(1, pairs + 1)
        if _is_done(folder, number)
    ]


def load_experiment(folder: Path) -> Experiment:
    """The plan of a folder. Raises ConfigError where there is none."""
    path = folder / _PLAN
    try:
        experiment = msgspec.json.decode(path.read_bytes(), type=Experiment)
    except FileNotFoundError:
        raise ConfigError(f"{folder} holds no experiment of `firsttoken bench ab` (ab.json is missing).") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path} cannot be read as an experiment of `firsttoken bench ab`: {error}.") from None
    if experiment.schema != SCHEMA:
        raise ConfigError(f"{path} has the schema {experiment.schema!r}, and this version reads {SCHEMA!r}.")
    return experiment


def measurer(
    spec: BenchSpec,
    tell: Callable[[Event], None],
    monitor: Callable[[], Monitor] | None = None,
    judges: Callable[[], Sequence[Judge]] = tuple,
) -> Measure:
    """Measures by `run_scenarios`. Each run gets a monitor and judges of its own, as the sides' weights may differ."""

    def measure(command: str, seed: int, out: Path) -> RunResult:
        fresh = replace(spec, launch=command, seed=seed, out=out, launch_log=None)
        return run_scenarios(fresh, tell, monitor=monitor() if monitor else None, judges=judges())

    return measure


def _is_done(folder: Path, number: int) -> bool:
    return _mark(folder, number).exists()


def _mark(folder: Path, number: int) -> Path:
    """Written when both sides are whole: a run that was killed between two scenarios looks whole by itself."""
    return folder / f"pair-{number:02d}.done"


def _write(path: Path, content: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(content)
    os.replace(fresh, path)


def _forget(path: Path) -> None:
    for file in (path, requests_path(path)):
        file.unlink(missing_ok=True)


def _result_path(folder: Path, number: int, side: str) -> Path:
    return folder / f"pair-{number:02d}-{side}.json"


def _prompt_seed(seed: int, number: int) -> int:
    return random.Random(f"{seed}/{number}").getrandbits(63)
