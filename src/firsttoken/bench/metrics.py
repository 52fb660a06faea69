"""A scenario's figures from its raw records. Every definition is written out in docs/reference/metrics.md."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from firsttoken.bench.records import STOPPED, Distribution, Metrics, RequestRecord
from firsttoken.errors import ConfigError

SLO_NAMES = ("ttft", "tpot", "e2e", "gap")
COUNTED = ("server", "tokenizer")
"""Sources of `Chunk.tokens` that know them chunk by chunk; the others spread a total."""
_LEAST = {50: 5, 90: 29, 99: 299}


def least_sample(percentile: int) -> int:
    """The smallest sample that carries a percentile: 5 for P50, 29 for P90, 299 for P99.

    With fewer, the chance that not one observation lies above the true percentile is over 5 % (q^n > 0.05), and then
    the figure would be made of nothing.
    """
    return _LEAST[percentile]


def percentile(ordered: Sequence[float], q: float) -> float:
    """The q-th quantile (0 to 1) of an ascending sample, linear between neighbours (Hyndman and Fan's type 7)."""
    place = (len(ordered) - 1) * q
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def distribution(values: Iterable[float]) -> Distribution:
    """Summary of a sample, with a note that names the percentiles that it is too small for."""
    ordered = sorted(values)
    count = len(ordered)
    if not count:
        return Distribution(count=0, note="nothing was observed")
    carried = {p: percentile(ordered, p / 100) if count >= least else None for p, least in _LEAST.items()}
    absent = [f"P{p} needs {_LEAST[p]}" for p, value in carried.items() if value is None]
    note = f"{', '.join(absent)} observations; there are {count}" if absent else None
    return Distribution(
        count=count,
        mean=math.fsum(ordered) / count,
        minimum=ordered[0],
        maximum=ordered[-1],
        p50=carried[50],
        p90=carried[90],
        p99=carried[99],
        note=note,
    )


# --- one request ---


def ttft(record: RequestRecord) -> float | None:
    """From the send to the first chunk with content; seconds."""
    return record.chunks[0].at - record.sent if record.chunks else None


def ttft_scheduled(record: RequestRecord) -> float | None:
    """From the time at which it was due; from the send where there is no schedule."""
    start = record.sent if record.intended is None else record.intended
    return record.chunks[0].at - start if record.chunks else None


def output_tokens(record: RequestRecord) -> int:
    """The server's count, else the sum over the chunks."""
    if record.completion_tokens is not None:
        return record.completion_tokens
    return sum(chunk.tokens for chunk in record.chunks)


def tpot(record: RequestRecord) -> float | None:
    """Seconds a token after the first: (last − first chunk) / (tokens − 1). None below two tokens or two chunks."""
    tokens = output_tokens(record)
    if tokens < 2 or len(record.chunks) < 2:
        return None
    return (record.chunks[-1].at - record.chunks[0].at) / (tokens - 1)


def gaps(record: RequestRecord) -> list[float]:
    """Seconds between neighbouring chunks, whatever the number of their tokens."""
    return [after.at - before.at for before, after in pairwise(record.chunks)]


def worst_token_gap(record: RequestRecord) -> float | None:
    """The longest of the gaps, each divided among the tokens of the chunk that ended it; seconds a token.

    A chunk can bring several tokens: half a character has no text, so its token comes with the next one's. None where
    the tokens of each chunk were not counted (`token_source`), and below two chunks.
    """
    if record.token_source not in COUNTED:
        return None
    return max(
        (gap / max(chunk.tokens, 1) for gap, chunk in zip(gaps(record), record.chunks[1:], strict=True)), default=None
    )


def e2e(record: RequestRecord) -> float:
    """From the send to the end of the answer's body; seconds."""
    return record.ended - record.sent


def e2e_scheduled(record: RequestRecord) -> float:
    """From the time at which it was due; from the send where there is no schedule."""
    return record.ended - (record.sent if record.intended is None else record.intended)


def meets(record: RequestRecord, slo: Mapping[str, float]) -> bool:
    """Whether a request was answered within every limit; its waits count from the schedule where there is one."""
    if record.error is not None or not record.chunks:
        return False
    found = {
        "ttft": ttft_scheduled(record),
        "tpot": tpot(record),
        "e2e": e2e_scheduled(record),
        "gap": max(gaps(record), default=None),
    }
    # A one-token answer has no TPOT and no gap to break a limit with.
    return all((value := found[name]) is None or value <= limit for name, limit in slo.items())


# --- one scenario ---


def measure(records: Iterable[RequestRecord], slo: Mapping[str, float] | None = None) -> Metrics:
    """Figures of the measured requests among `records`. Latencies are those of answered requests."""
    measured = [record for record in records if record.phase == "measured" and record.error != STOPPED]
    good = [record for record in measured if record.error is None]
    scheduled = [record for record in measured if record.intended is not None]
    scheduled_good = [record for record in good if record.intended is not None]
    span = _span(measured)
    output = sum(output_tokens(record) for record in good)
    prompts = [record.prompt_tokens for record in good if record.prompt_tokens is not None]
    prompt = sum(prompts) if good and len(prompts) == len(good) else None
    cached = [record.cached_tokens for record in good if record.cached_tokens is not None]
    tpots = distribution(_known(tpot(record) for record in good))
    every_gap = [gaps(record) for record in good]
    token_gaps = _known(map(worst_token_gap, good))
    within = sum(meets(record, slo) for record in measured) if slo else None

    def rate(count: float) -> float:
        return count / span if span > 0 else 0.0

    return Metrics(
        attempted=len(measured),
        succeeded=len(good),
        failed=len(measured) - len(good),
        duration=span,
        ttft=distribution(_known(ttft(record) for record in good)),
        ttft_scheduled=distribution(_known(map(ttft_scheduled, scheduled_good))) if scheduled else None,
        tpot=tpots,
        gaps=distribution(gap for of_one in every_gap for gap in of_one),
        worst_gap=distribution(max(of_one) for of_one in every_gap if of_one),
        worst_token_gap=distribution(token_gaps) if token_gaps else None,
        e2e=distribution(e2e(record) for record in good),
        e2e_scheduled=distribution(map(e2e_scheduled, scheduled_good)) if scheduled else None,
        send_lag=distribution(r.sent - r.intended for r in scheduled if r.intended is not None) if scheduled else None,
        prompt_tokens=prompt,
        output_tokens=output,
        cached_tokens=sum(cached) if cached else None,
        output_tokens_per_s=rate(output),
        total_tokens_per_s=rate(output + prompt) if prompt is not None else None,
        requests_per_s=rate(len(good)),
        decode_tokens_per_s=1 / tpots.p50 if tpots.p50 else None,
        max_in_flight=_max_in_flight(measured),
        slo=dict(slo or {}),
        goodput_per_s=rate(within) if within is not None else None,
        goodput_share=within / len(measured) if within is not None and measured else None,
    )


def measure_groups(records: Sequence[RequestRecord], slo: Mapping[str, float] | None = None) -> dict[str, Metrics]:
    """Figures by group where there is more than one; empty else."""
    groups = sorted({record.group for record in records if record.phase == "measured"})
    if len(groups) < 2:
        return {}
    return {group: measure([record for record in records if record.group == group], slo) for group in groups}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _span(records: Sequence[RequestRecord]) -> float:
    """Seconds from the first send to the last end."""
    if not records:
        return 0.0
    return max(record.ended for record in records) - min(record.sent for record in records)


def _max_in_flight(records: Sequence[RequestRecord]) -> int:
    # At one instant an end comes before a send: a closed loop's next request is not beside its last one.
    changes = sorted([(record.sent, 1) for record in records] + [(record.ended, -1) for record in records])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


# --- what the user asks for ---

_LIMIT = re.compile(r"\s*([a-z0-9]+)\s*=\s*([0-9.]+)\s*(ms|s)\s*")


def parse_slo(text: str) -> dict[str, float]:
    """ "ttft=500ms,tpot=50ms" as seconds by metric. Raises ConfigError that says what is wrong."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        match = _LIMIT.fullmatch(part)
        names = ", ".join(SLO_NAMES)
        if match is None or match[1] not in SLO_NAMES:
            raise ConfigError(f"--slo {part.strip()!r} is not a limit: write ttft=500ms or e2e=2s, for any of {names}")
        try:
            value = float(match[2])
        except ValueError:
            value = 0.0
        if value <= 0 or match[1] in limits:
            raise ConfigError(f"--slo {part.strip()!r}: give each of {names} at most once, above 0")
        limits[match[1]] = value / 1000 if match[3] == "ms" else value
    return limits
