"""What a card does while it works: an idle one rests its clocks and its link, and tells nothing of what it can do."""

from __future__ import annotations

import selectors
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from firsttoken.machine.card_state import read_link
from firsttoken.machine.gpu_sensors import GpuReading, GpuSensors

_SECONDS = 2.0  # of load: clocks rise within the first tenths, heat and power caps show within the rest
_START = 120.0  # seconds; importing torch from a cold disk can take most of it
_OVERTIME = 10.0  # seconds; a card that hangs is not waited for
_PAUSE = 0.05  # between two readings
_FEWEST = 4  # readings that say something
_BESIDE = 20  # readings beside other programs: a second
_RISING = 0.25  # of the samples at the start, during which clocks still rise


@dataclass(frozen=True, slots=True)
class UnderLoad:
    """A card at work. What it does not tell is None."""

    samples: int
    sm_clock_mhz: float | None = None  # median
    memory_clock_mhz: float | None = None  # median
    power_w: float | None = None  # highest
    temperature_c: float | None = None  # highest
    link_generation: int | None = None  # highest
    link_width: int | None = None  # highest
    held_back: tuple[tuple[str, float], ...] = ()  # reason and the share of samples that had it
    busy_percent: float | None = None  # median share of a sampling period in which any kernel ran
    by_others: bool = False  # the work was another program's, and may ask less of the card than products do


class Load(Protocol):
    """Work on a card."""

    def start(self) -> None:
        """Returns when the card is at work. Raises OSError, in a sentence, where it cannot be."""

    def working(self) -> bool: ...
    def stop(self) -> None: ...


class OthersLoad:
    """What other programs do on the card meanwhile: nothing is added, so nothing is slowed down."""

    def __init__(self, readings: int = _BESIDE) -> None:
        self._left = readings

    def start(self) -> None:
        """They are at work or they are not: `UnderLoad.busy_percent` tells."""

    def working(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def stop(self) -> None:
        """There is nothing to stop."""


def watch(nvml: Any, index: int, load: Load, sleep: Callable[[float], object] = time.sleep) -> UnderLoad:
    """Reads the card while `load` runs to its end. Raises OSError where the load does not start or does not last."""
    sensors = GpuSensors(nvml)
    readings: list[GpuReading] = []
    links: list[tuple[int, int]] = []
    try:
        load.start()
        while load.working():
            readings.append(sensors.read(index))
            if (link := read_link(nvml, index)) is not None:
                links.append(link)
            sleep(_PAUSE)
    finally:
        load.stop()
        sensors.close()
    if len(readings) < _FEWEST:
        raise OSError("the load ended too soon")
    return _sum_up(readings[int(len(readings) * _RISING) :], links)


def _sum_up(readings: list[GpuReading], links: list[tuple[int, int]]) -> UnderLoad:
    reasons = sorted({reason for one in readings for reason in one.held_back})
    return UnderLoad(
        samples=len(readings),
        sm_clock_mhz=_of([one.sm_clock_mhz for one in readings], statistics.median),
        memory_clock_mhz=_of([one.memory_clock_mhz for one in readings], statistics.median),
        power_w=_of([one.power_w for one in readings], max),
        temperature_c=_of([one.temperature_c for one in readings], max),
        link_generation=max((generation for generation, _ in links), default=None),
        link_width=max((width for _, width in links), default=None),
        held_back=tuple((text, sum(text in one.held_back for one in readings) / len(readings)) for text in reasons),
        busy_percent=_of([one.busy_percent for one in readings], statistics.median),
    )


def _of(values: list[float | None], pick: Callable[[list[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return pick(known) if known else None


class TorchLoad:
    """`machine.gpu_load` as a process, for some two seconds."""

    def __init__(self, index: int, seconds: float = _SECONDS, start_within: float = _START) -> None:
        self._command = [sys.executable, "-P", "-m", "firsttoken.machine.gpu_load", str(index), str(seconds)]
        self._start_within = start_within
        self._longest = seconds + _OVERTIME
        self._process: subprocess.Popen[str] | None = None
        self._started = 0.0

    def start(self) -> None:
        self._process = process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            spoke = selector.select(self._start_within)
        if spoke and process.stdout.readline().strip() == "working":
            self._started = time.monotonic()
            return
        _end(process)
        lines = process.stderr.read().strip().splitlines()
        raise OSError(lines[-1] if lines else f"the load did not start within {self._start_within:.0f} s")

    def working(self) -> bool:
        process = self._process
        return process is not None and process.poll() is None and time.monotonic() - self._started < self._longest

    def stop(self) -> None:
        if self._process is not None:
            _end(self._process)
            for pipe in (self._process.stdout, self._process.stderr):
                assert pipe is not None
                pipe.close()


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
