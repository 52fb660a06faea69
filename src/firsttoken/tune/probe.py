"""A first run of the baseline, which no verdict uses: it warms the disk, and tells what work and machine are."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from firsttoken.bench.metrics import output_tokens
from firsttoken.bench.records import RequestRecord, RunResult
from firsttoken.bench.roofline import Roofline
from firsttoken.tune.disturbance import Disturbance


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """The work as the baseline saw it, and the machine's bounds for it. Tokens are a request's."""

    seconds: float
    failure: str = ""
    device: str = ""  # "cpu" or "cuda"
    card: str = ""
    memory_total: int = 0  # bytes
    memory_free: int = 0
    cores: int = 1
    streams: float = 1.0  # in flight on average
    most_streams: int = 1
    prompt: float = 0.0
    longest: int = 0  # prompt and answer
    longest_prompt: int = 0
    cached: float = 0.0  # taken from the prefix cache
    repeated: float = 0.0  # that an earlier request of the same dialogue had sent or been answered
    shared: int = 0  # at the beginning of all prompts, by the scenario
    output: float = 0.0
    ttft: float = 0.0  # seconds
    tpot: float = 0.0
    bounds: dict[str, Any] = {}  # the roofline, where it is known
    disturbed: list[Disturbance] = []  # what else acted on it

    def roofline(self) -> Roofline | None:
        return msgspec.convert(self.bounds, Roofline) if self.bounds else None


def facts_of(result: RunResult) -> dict[str, Any]:
    """What a finished run tells of its work."""
    records = [r for one in result.scenarios for r in one.records if r.phase == "measured" and r.error is None]
    metrics = [one.metrics for one in result.scenarios if one.metrics is not None]
    prompts = [r.prompt_tokens or r.prompt_tokens_intended or 0 for r in records]
    outputs = [output_tokens(r) for r in records]
    first = [r.chunks[0].at - r.sent for r in records if r.chunks]
    rates = [(r.chunks[-1].at - r.chunks[0].at) / (n - 1) for r, n in zip(records, outputs, strict=True) if n > 1]
    busy = sum(r.ended - r.sent for r in records)
    span = sum(one.duration for one in metrics)
    return {
        "streams": max(busy / span, 1.0) if span > 0 else 1.0,
        "most_streams": max((one.max_in_flight for one in metrics), default=1),
        "prompt": _mean(prompts),
        "longest": max((p + n for p, n in zip(prompts, outputs, strict=True)), default=0),
        "longest_prompt": max(prompts, default=0),
        "cached": _mean([r.cached_tokens or 0 for r in records]),
        "repeated": _mean(_repeated(records)),
        "output": _mean(outputs),
        "ttft": statistics.median(first) if first else 0.0,
        "tpot": statistics.median(rates) if rates else 0.0,
        "bounds": result.bounds,
    }


def _repeated(records: Sequence[RequestRecord]) -> list[int]:
    """For each request, the tokens of the turn before it in its dialogue: all of them begin its prompt."""
    before: dict[tuple[str, int], RequestRecord] = {}
    found = []
    for record in sorted(records, key=lambda r: r.sent):
        key = (record.scenario, record.stream)
        earlier = before.get(key)
        follows = earlier is not None and record.turn == earlier.turn + 1
        found.append((earlier.prompt_tokens or 0) if follows and earlier is not None else 0)
        before[key] = record
    return found


def _mean(values: Sequence[int]) -> float:
    return statistics.fmean(values) if values else 0.0
