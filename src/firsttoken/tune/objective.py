"""What a session makes better: one figure of a run, and the direction in which it is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from firsttoken.bench.records import Distribution, Metrics, RunResult
from firsttoken.bench.words import Words

Objective = Literal["tpot", "ttft_p99", "throughput", "goodput"]
OBJECTIVES: tuple[Objective, ...] = ("tpot", "ttft_p99", "throughput", "goodput")


@dataclass(frozen=True, slots=True)
class Figure:
    """An objective for people and for comparisons."""

    name: Words
    lower_is_better: bool
    is_time: bool


FIGURES: dict[Objective, Figure] = {
    "tpot": Figure(Words("TPOT, median", "TPOT 中位数"), True, True),
    "ttft_p99": Figure(Words("TTFT, its tail", "TTFT 尾部"), True, True),
    "throughput": Figure(Words("output tok/s", "输出 tok/s"), False, False),
    "goodput": Figure(Words("goodput, requests/s", "有效吞吐（请求/秒）"), False, False),
}


def value_of(result: RunResult, objective: Objective) -> float | None:
    """The objective's figure; over several scenarios their geometric mean. None where one has none above zero."""
    values = [_value(one.metrics, objective) for one in result.scenarios if one.metrics is not None]
    known = [value for value in values if value is not None and value > 0]
    if not known or len(known) < len(values):
        return None
    return math.exp(math.fsum(map(math.log, known)) / len(known))


def _value(metrics: Metrics, objective: Objective) -> float | None:
    match objective:
        case "tpot":
            return middle(metrics.tpot)
        case "ttft_p99":
            return tail(metrics.ttft)
        case "throughput":
            return metrics.output_tokens_per_s
        case "goodput":
            return metrics.goodput_per_s


def middle(sample: Distribution) -> float | None:
    """The median, or the mean of a sample that is too small for one."""
    return sample.p50 if sample.p50 is not None else sample.mean


def tail(sample: Distribution) -> float | None:
    """The highest percentile that the sample carries: P99 takes 299 requests, P90 29; else the mean."""
    return next((value for value in (sample.p99, sample.p90) if value is not None), sample.mean)


def tail_name(count: int) -> str:
    """What `tail` is of a sample of so many."""
    return "P99" if count >= 299 else "P90" if count >= 29 else "mean"


def figures_of(result: RunResult) -> dict[str, float]:
    """What a report shows of a run beside its objective; geometric means over scenarios."""
    metrics = [one.metrics for one in result.scenarios if one.metrics is not None]
    found = {
        "ttft": _mean([middle(one.ttft) for one in metrics]),
        "tpot": _mean([middle(one.tpot) for one in metrics]),
        "e2e": _mean([middle(one.e2e) for one in metrics]),
        "output_tokens_per_s": _mean([one.output_tokens_per_s for one in metrics]),
        "goodput_per_s": _mean([one.goodput_per_s for one in metrics]),
        "ready": result.ready_seconds,
    }
    return {name: value for name, value in found.items() if value is not None}


def _mean(values: Sequence[float | None]) -> float | None:
    """The geometric mean, as the objective's."""
    known = [value for value in values if value is not None and value > 0]
    return math.exp(math.fsum(map(math.log, known)) / len(known)) if known else None
