"""When requests of an open loop are sent: offsets in seconds from the start, fixed before the first one goes out."""

from __future__ import annotations

import random
from pathlib import Path

from firsttoken.bench.records import LoadSpec
from firsttoken.errors import ConfigError


def arrival_times(load: LoadSpec, seed: int) -> list[float]:
    """The schedule of an open loop, ascending, cut at `load.requests` and `load.duration`.

    Poisson: independent exponential gaps of mean 1/rate, the first before the first request. Constant: one every
    1/rate, the first at 0. Raises ConfigError on a load that has no schedule or no end.
    """
    if load.arrivals == "trace":
        times = sorted(load.trace)[: load.requests]
        return [at for at in times if load.duration is None or at < load.duration]
    if load.arrivals is None or load.rate is None or load.rate <= 0:
        raise ConfigError("an open loop needs a rate above 0, in requests a second")
    if load.requests is None and load.duration is None:
        raise ConfigError("an open loop needs a number of requests or a duration")
    draw = random.Random(f"arrivals/{seed}")
    times = []
    at = 0.0 if load.arrivals == "constant" else draw.expovariate(load.rate)
    while (load.requests is None or len(times) < load.requests) and (load.duration is None or at < load.duration):
        times.append(at)
        # Multiplied, not added up: a constant rate does not drift.
        at = len(times) / load.rate if load.arrivals == "constant" else at + draw.expovariate(load.rate)
    return times


def read_trace(path: Path) -> list[float]:
    """A trace file: one offset in seconds a line, blank lines and # comments left out; shifted to begin at 0."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the trace file {path} cannot be read: {error}") from None
    times: list[float] = []
    for number, line in enumerate(lines, 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        try:
            at = float(text)
        except ValueError:
            at = float("nan")
        if not 0 <= at < 1e12:
            raise ConfigError(f"line {number} of {path} is not a time in seconds: {text!r}")
        times.append(at)
    if not times:
        raise ConfigError(f"the trace file {path} holds no times")
    first = min(times)
    return sorted(at - first for at in times)
