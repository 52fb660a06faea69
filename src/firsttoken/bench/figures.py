"""What each chart of the report shows, drawn from a run's records. Long series are thinned, and that is said."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from firsttoken.bench import units, words
from firsttoken.bench.metrics import output_tokens, tpot, ttft
from firsttoken.bench.records import RequestRecord, RunResult, Sample, ScenarioResult
from firsttoken.bench.svg import Axis, Mark, Series, Span, apart, bars, chart, linear_axis, log_axis, timeline
from firsttoken.bench.words import Words, same

MOST_POINTS = 240  # of one curve; more than its pixels can tell apart
MOST_ROWS = 120  # requests of one timeline

Values = Callable[[RequestRecord], Sequence[float]]
"""The values that one request adds to a distribution."""

SHARE = Words("Share of requests", "请求占比")
_ELAPSED = Words("Seconds since the first request", "第一个请求之后的秒数")


def measured(scenario: ScenarioResult) -> list[RequestRecord]:
    """The records that figures are made of: measured, and answered in full."""
    return [record for record in scenario.records if record.phase == "measured" and record.error is None]


def ttft_values(record: RequestRecord) -> list[float]:
    return [value] if (value := ttft(record)) is not None else []


def tpot_values(record: RequestRecord) -> list[float]:
    return [value] if (value := tpot(record)) is not None else []


def distribution(
    named: Sequence[tuple[Words, Sequence[float]]],
    title: Words,
    label: str,
    *,
    log: bool = False,
    median: float | None = None,
) -> str:
    """Cumulative distributions over one time axis, in milliseconds; `median` (seconds) is marked."""
    in_ms = [(name, sorted(value * 1000 for value in values)) for name, values in named if values]
    every = [value for _, values in in_ms for value in values]
    axis = Words(f"{title.en}, ms", f"{title.zh}，毫秒")
    x = log_axis(axis, every) if log else _time_axis(axis, every)
    series = [
        Series(name, _steps(values, x.low), colour=number, steps=True) for number, (name, values) in enumerate(in_ms)
    ]
    marks = [Mark(median * 1000, f"P50 {units.seconds(median)}")] if median is not None else []
    y = linear_axis(SHARE, [1.0], format=lambda value: f"{value * 100:.0f} %")
    return chart(series, x, y, marks=marks, label=label, height=250)


def request_timeline(scenario: ScenarioResult, label: str) -> tuple[str, int]:
    """Waiting and decoding of each request, one row each, and how many are left out."""
    records = sorted(scenario.records, key=lambda record: record.sent)
    every = max(math.ceil(len(records) / MOST_ROWS), 1)
    shown = records[::every]
    zero = min((record.intended or record.sent for record in shown), default=0.0)
    spans: list[Span] = []
    dots: list[tuple[float, float, str]] = []
    for row, record in enumerate(shown):
        first = record.chunks[0].at if record.chunks else record.ended
        tip = _record_tip(record)
        if record.intended is not None and record.sent - record.intended > 0.001:
            spans.append(Span(record.intended - zero, record.sent - zero, row, 3, tip))
        spans.append(Span(record.sent - zero, first - zero, row, 4 if record.error else 1, tip))
        if record.chunks:
            colour = 4 if record.error else 5 if record.phase == "warm-up" else 0
            spans.append(Span(first - zero, max(record.ended, record.chunks[-1].at) - zero, row, colour, tip))
            dots.append((first - zero, row, tip))
    legend = [
        (Words("waiting for the first token", "等待首 token"), 1),
        (Words("decoding", "解码"), 0),
    ]
    if any(record.phase == "warm-up" for record in shown):
        legend.append((Words("warm-up", "预热"), 5))
    if any(record.error for record in shown):
        legend.append((Words("failed", "失败"), 4))
    if any(span.colour == 3 for span in spans):
        legend.append((Words("sent late", "发送滞后"), 3))
    x = linear_axis(_ELAPSED, [span.end for span in spans])
    rows = Words("Requests in order of sending", "请求（按发送顺序）")
    return timeline(spans, dots, legend, x, len(shown), rows, label), len(records) - len(shown)


def sweep_throughput(points: Sequence[ScenarioResult], label: str) -> str:
    """Output tokens a second against load, and what one user sees of it."""
    at = [(load_value(point), point) for point in points if point.metrics is not None]
    series = [
        Series(
            Words("all users together", "全部用户合计"),
            [(x, p.metrics.output_tokens_per_s) for x, p in at if p.metrics],
            dots=True,
            tips=[f"{p.load.label}: {units.rate(p.metrics.output_tokens_per_s)} tok/s" for _, p in at if p.metrics],
        ),
    ]
    ceilings = [(x, share.ceiling) for x, p in at for share in p.shares if share.figure == "output_tokens_per_s"]
    if ceilings:
        series.append(Series(Words("ceiling", "上限"), ceilings, colour=3, dots=True))
    values = [y for one in series for _, y in one.points]
    y_axis = linear_axis(Words("Output tok/s", "输出 tok/s"), values)
    return chart(series, _load_axis(at), y_axis, label=label)


def sweep_latency(points: Sequence[ScenarioResult], label: str) -> str:
    """Median TTFT and TPOT against load, on a logarithmic axis since they differ by orders of magnitude."""
    at = [(load_value(point), point) for point in points if point.metrics is not None]

    def line(name: str, colour: int, pick: Callable[[ScenarioResult], float | None]) -> Series:
        found = [(x, value * 1000, point) for x, point in at if (value := pick(point)) is not None and value > 0]
        tips = [f"{point.load.label}: {name} {units.seconds(y / 1000)}" for _, y, point in found]
        return Series(same(name), [(x, y) for x, y, _ in found], colour=colour, dots=True, tips=tips)

    series = [
        line("TTFT P50", 1, lambda point: point.metrics.ttft.p50 if point.metrics else None),
        line("TPOT P50", 0, lambda point: point.metrics.tpot.p50 if point.metrics else None),
    ]
    y = log_axis(Words("Milliseconds", "毫秒"), [value for one in series for _, value in one.points])
    return chart(series, _load_axis(at), y, label=label)


def load_value(point: ScenarioResult) -> float:
    """Where a sweep's point lies on its axis: requests in flight, or requests a second."""
    return float(point.load.concurrency or point.load.rate or 1)


def shares(result: RunResult, label: str) -> str:
    """Every figure's share of its ceiling, one bar each."""
    rows = [
        (
            _bar_name(scenario.name, share.figure),
            share.share,
            units.percent(share.share),
            4 if share.share > 1 else {"ttft": 1, "tpot": 0}.get(share.figure, 2),
        )
        for scenario in result.scenarios
        for share in scenario.shares
    ]
    axis = linear_axis(
        Words("Share of the ceiling", "达到上限的比例"), [1.0, *(row[1] for row in rows)], format=units.percent
    )
    return bars(rows, axis, label, mark=1.0)


def _bar_name(scenario: str, figure: str) -> Words:
    name = words.figure_name(figure)
    return Words(f"{scenario} · {name.en}", f"{scenario} · {name.zh.partition('（')[0]}")


def sensors(result: RunResult) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """By a value's name and then by source: points in seconds since the first sample.

    Processes of one role are added up, since who runs what is the server's affair.
    """
    zero = min((sample.at for sample in result.samples), default=0.0)
    sums: dict[tuple[str, str], dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for sample in result.samples:
        for name, value in sample.values.items():
            sums[name, _role(sample.source)][sample.at - zero] += value
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(dict)
    for (name, source), points in sums.items():
        found[name][source] = _thin(sorted(points.items()))
    return dict(found)


def _role(source: str) -> str:
    """ "process:server/python3:812" is "server"; a card or the host is itself."""
    kind, _, rest = source.partition(":")
    return rest.partition("/")[0].partition(":")[0] if kind == "process" else source


def scenario_starts(result: RunResult) -> list[Mark]:
    """Where each scenario begins on the sensors' time axis."""
    zero = min((sample.at for sample in result.samples), default=0.0)
    end = max((sample.at for sample in result.samples), default=0.0)
    begun = sorted((one.started, one.name) for one in result.scenarios if zero <= one.started <= end)
    return [Mark(at - zero, name, above=True) for at, name in begun]


def sensor_chart(
    named: Mapping[str, Sequence[tuple[float, float]]], unit: Words, scale: float, marks: Sequence[Mark], label: str
) -> str:
    """One quantity of several sources over the run."""
    series = [
        Series(source_name(source), [(at, value * scale) for at, value in points], colour=number)
        for number, (source, points) in enumerate(named.items())
    ]
    x = linear_axis(
        Words("Seconds since the run began", "运行开始后的秒数"), [at for p in named.values() for at, _ in p]
    )
    y = linear_axis(unit, [value for one in series for _, value in one.points])
    return chart(series, x, y, marks=apart(marks, x), label=label, height=220)


def source_name(source: str) -> Words:
    """A sampled source for people."""
    known = {"server": Words("server", "服务"), "client": Words("client", "客户端"), "host": Words("host", "主机")}
    return known.get(source, same(source))


def throttled(samples: Iterable[Sample]) -> dict[str, int]:
    """How many readings named each reason for held-back clocks."""
    found: dict[str, int] = defaultdict(int)
    for sample in samples:
        for state in sample.states:
            found[state] += 1
    return dict(found)


def _load_axis(at: Sequence[tuple[float, ScenarioResult]]) -> Axis:
    open_loop = any(point.load.open for _, point in at)
    label = Words("Requests a second offered", "每秒到达请求数") if open_loop else Words("Requests in flight", "并发数")
    values = sorted({x for x, _ in at})
    return log_axis(label, values, at=values)


def _record_tip(record: RequestRecord) -> str:
    parts = [f"#{record.stream}" + (f".{record.turn + 1}" if record.turn else "")]
    first = ttft(record)
    if first is not None:
        parts.append(f"TTFT {units.seconds(first)}")
    each = tpot(record)
    if each is not None:
        parts.append(f"TPOT {units.seconds(each)}")
    parts.append(f"{output_tokens(record)} tok")
    if record.error:
        parts.append(record.error)
    return " · ".join(parts)


def _time_axis(label: Words, values: Sequence[float]) -> Axis:
    """From zero, or close around the values where they lie far from it, so that their spread can be seen."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low > 0 and high / low < 1.6:
        return linear_axis(label, values, from_zero=False)
    return linear_axis(label, values)


def _steps(values: Sequence[float], low: float) -> list[tuple[float, float]]:
    """The empirical distribution: after the k-th of n values, k/n of them have been seen."""
    points = [(value, (number + 1) / len(values)) for number, value in enumerate(values)]
    return [(low, 0.0), *_thin(points)]


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Every n-th point, and always the last."""
    every = math.ceil(len(points) / MOST_POINTS)
    if every <= 1:
        return points
    kept = points[::every]
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]
