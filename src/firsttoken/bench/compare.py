"""Runs side by side: the before/after table, with intervals where the runs were made in pairs, else without a claim."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from firsttoken.bench.energy import scenario_usage
from firsttoken.bench.records import Distribution, LoadSpec, Metrics, RequestRecord, RunResult, ScenarioResult
from firsttoken.bench.statistics import MINIMUM_PAIRS, Verdict, paired_ratio
from firsttoken.errors import ConfigError

MARGIN = 0.02
"""Two sides within 2 % of each other count as the same."""

_CONFIDENCE = 0.95  # of all judged rows together
_SAME_PROMPTS = 0.02  # by which two runs' median prompt lengths may differ: tokenizers and templates vary a little

Unit = Literal["s", "tok/s", "%", "bytes", "share", "W", "J/tok", "cores"]


class Figure(msgspec.Struct, frozen=True):
    """One line of the table for each scenario, or for the run."""

    key: str
    name: str
    unit: Unit
    lower_is_better: bool
    judged: bool = False  # whether a pair's ratio is turned into a verdict; the others are shown as they are


FIGURES: tuple[Figure, ...] = (
    Figure("ready", "launch to ready", "s", True, True),
    Figure("ttft", "TTFT", "s", True, True),
    Figure("tpot", "TPOT", "s", True, True),
    Figure("worst_gap", "worst gap", "s", True),
    Figure("worst_token_gap", "worst token gap", "s", True),
    Figure("e2e", "total", "s", True, True),
    Figure("output_tokens_per_s", "output tok/s", "tok/s", False, True),
    Figure("tpot_share", "TPOT, share of ceiling", "share", False),
    Figure("output_share", "tok/s, share of ceiling", "share", False),
    Figure("gpu_percent", "GPU use", "%", False),
    Figure("vram_bytes", "VRAM", "bytes", True),
    Figure("power_w", "power", "W", True),
    Figure("energy_j_per_token", "energy a token", "J/tok", True),
    Figure("server_cores", "server's CPU", "cores", True),
    Figure("server_rss_bytes", "server's memory", "bytes", True),
)


class Interval(msgspec.Struct, frozen=True):
    """B over A from pairs: 0.97 means that B's figure is 3 % lower."""

    ratio: float
    low: float
    high: float
    pairs: int
    flip_p: float
    verdict: Verdict


class Row(msgspec.Struct, frozen=True):
    """One figure of one scenario for every side; of several runs of a side the median."""

    scenario: str  # empty for a figure of the whole run
    load: str
    figure: Figure
    values: list[float | None]  # one a side
    change: list[float | None]  # each side over the first, less 1; the first is None
    interval: Interval | None = None  # of two sides measured in pairs


class Comparison(msgspec.Struct, frozen=True):
    """Plain data for a table; rows of a figure that no side has are left out."""

    labels: list[str]
    rows: list[Row]
    paired: bool
    confidence: float | None  # of the intervals of all judged rows together
    margin: float | None
    notes: list[str]  # what a reader must know, one sentence each


def compare(runs: Sequence[RunResult], labels: Sequence[str]) -> Comparison:
    """Runs that were made one after the other: differences are shown, none is claimed.

    Raises ConfigError, in one sentence, where the runs did not measure the same thing.
    """
    if len(runs) < 2 or len(labels) != len(runs):
        raise ConfigError("A comparison needs two results at least.")
    rows = [
        _row(place, figure, [[found.get(place, {}).get(figure.key)] for found in map(_figures, runs)])
        for place in _common(runs, labels)
        for figure in FIGURES
    ]
    notes = ["The runs were not made in pairs, so no difference is claimed: use `firsttoken bench ab` for that."]
    return Comparison(
        labels=list(labels),
        rows=[row for row in rows if row is not None],
        paired=False,
        confidence=None,
        margin=None,
        notes=notes + _notes([[run] for run in runs], labels),
    )


def compare_pairs(
    pairs: Sequence[tuple[RunResult, RunResult]], labels: Sequence[str] = ("A", "B"), margin: float = MARGIN
) -> Comparison:
    """Two sides that were measured in pairs: each judged figure gets an interval and a verdict.

    All judged rows hold together with 95 % (Bonferroni), so that many rows do not find a difference by chance. Raises
    ConfigError, in one sentence, where a pair did not measure the same thing.
    """
    if not pairs:
        raise ConfigError("A comparison in pairs needs one finished pair at least.")
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    places = _common(
        [run for pair in pairs for run in pair], [f"{x}{i + 1}" for i in range(len(pairs)) for x in labels]
    )
    found = [[_figures(run) for run in side] for side in sides]
    rows = [
        _row(place, figure, [[figures.get(place, {}).get(figure.key) for figures in side] for side in found])
        for place in places
        for figure in FIGURES
    ]
    kept = [row for row in rows if row is not None]
    judged = sum(row.figure.judged for row in kept)
    confidence = 1 - (1 - _CONFIDENCE) / max(judged, 1)
    judge = _judge(found, confidence, margin)
    notes = []
    if len(pairs) < MINIMUM_PAIRS:
        notes.append(f"{len(pairs)} pairs are too few to claim a difference: {MINIMUM_PAIRS} are the least.")
    return Comparison(
        labels=list(labels),
        rows=[judge(row) for row in kept],
        paired=True,
        confidence=_CONFIDENCE,
        margin=margin,
        notes=notes + _notes(sides, labels),
    )


_Place = tuple[str, str]  # a scenario's name and its load's label; empty for the run
_Figures = Mapping[_Place, Mapping[str, float | None]]
_RUN: _Place = ("", "")


def _row(place: _Place, figure: Figure, sides: Sequence[Sequence[float | None]]) -> Row | None:
    values = [statistics.median(known) if (known := _known(side)) else None for side in sides]
    if not any(value is not None for value in values):
        return None
    base = values[0]
    change = [None if base is None or not base or value is None else value / base - 1 for value in values]
    return Row(*place, figure, values, [None, *change[1:]])


def _judge(sides: Sequence[Sequence[_Figures]], confidence: float, margin: float) -> Callable[[Row], Row]:
    def judge(row: Row) -> Row:
        if not row.figure.judged:
            return row
        place, key = (row.scenario, row.load), row.figure.key
        both = [
            (a, b)
            for first, second in zip(*sides, strict=True)
            if (a := first.get(place, {}).get(key)) and (b := second.get(place, {}).get(key))
        ]
        if not both:
            return row
        found = paired_ratio([a for a, _ in both], [b for _, b in both], confidence)
        verdict = found.verdict(lower_is_better=row.figure.lower_is_better, margin=margin)
        interval = Interval(found.ratio, found.low, found.high, found.pairs, found.flip_p, verdict)
        return msgspec.structs.replace(row, interval=interval)

    return judge


def _figures(run: RunResult) -> dict[_Place, dict[str, float | None]]:
    found: dict[_Place, dict[str, float | None]] = {_RUN: {"ready": run.ready_seconds}}
    for scenario in run.scenarios:
        if scenario.metrics is not None and scenario.complete:
            found[scenario.name, scenario.load.label] = _figures_of(scenario, run)
            for group, metrics in scenario.group_metrics.items():
                found[_group_place(scenario, group)] = _latencies(metrics)
    return found


def _group_place(scenario: ScenarioResult, group: str) -> _Place:
    return f"{scenario.name}, {group}", scenario.load.label


def _latencies(metrics: Metrics) -> dict[str, float | None]:
    return {
        "ttft": _middle(metrics.ttft),
        "tpot": _middle(metrics.tpot),
        "worst_gap": metrics.worst_gap.maximum,
        "worst_token_gap": None if metrics.worst_token_gap is None else metrics.worst_token_gap.maximum,
        "e2e": _middle(metrics.e2e),
    }


def _figures_of(scenario: ScenarioResult, run: RunResult) -> dict[str, float | None]:
    metrics = scenario.metrics
    assert metrics is not None
    shares = {share.figure: share.share for share in scenario.shares}
    used = scenario_usage(scenario, run.samples)
    return {
        # Requests of different kinds have no common latency: their groups do.
        **({} if scenario.group_metrics else _latencies(metrics)),
        "output_tokens_per_s": metrics.output_tokens_per_s or None,
        "tpot_share": shares.get("tpot"),
        "output_share": shares.get("output_tokens_per_s"),
        "gpu_percent": used.gpu_percent,
        "vram_bytes": used.vram_bytes,
        "power_w": used.power_w,
        "energy_j_per_token": used.energy_j_per_token,
        "server_cores": used.server_cores,
        "server_rss_bytes": used.server_rss_bytes,
    }


def _middle(sample: Distribution) -> float | None:
    """The median, or the mean where there are too few requests for one."""
    return sample.p50 if sample.p50 is not None else sample.mean


def _common(runs: Sequence[RunResult], labels: Sequence[str]) -> list[_Place]:
    """The run and every scenario that all runs have complete, in the first one's order; raises ConfigError."""
    by_name = [{s.name: s for s in run.scenarios if s.complete and s.metrics is not None} for run in runs]
    shared = [name for name in by_name[0] if all(name in found for found in by_name)]
    if not shared:
        had = "; ".join(
            f"{label} has {', '.join(found) or 'none'}" for label, found in zip(labels[:3], by_name[:3], strict=True)
        )
        raise ConfigError(f"These results cannot be compared, because no finished scenario is in all of them: {had}.")
    for name in shared:
        first = by_name[0][name]
        for label, found in zip(labels[1:], by_name[1:], strict=True):
            difference = _difference(first, found[name])
            if difference:
                raise ConfigError(
                    f"{labels[0]} and {label} cannot be compared: their scenario {name!r} differs in {difference}."
                )
    places = [_RUN]
    for name in shared:
        scenario = by_name[0][name]
        places += [(name, scenario.load.label), *(_group_place(scenario, group) for group in scenario.group_metrics)]
    return places


def _difference(a: ScenarioResult, b: ScenarioResult) -> str:
    """What keeps two results of one name from measuring the same; empty where nothing does."""
    if a.scenario != b.scenario:
        return f"what it is ({a.scenario} and {b.scenario})"
    if _offered(a.load) != _offered(b.load):
        return f"its load ({a.load.label} and {b.load.label}, {_amount(a.load)} and {_amount(b.load)})"
    prompts = [_median(scenario, lambda record: record.prompt_tokens) for scenario in (a, b)]
    if prompts[0] and prompts[1] and abs(prompts[1] / prompts[0] - 1) > _SAME_PROMPTS:
        return f"its prompts' length ({prompts[0]:.0f} and {prompts[1]:.0f} tokens)"
    outputs = [_median(scenario, lambda record: record.max_tokens) for scenario in (a, b)]
    if outputs[0] != outputs[1]:
        return f"the output asked for ({outputs[0] or 0:.0f} and {outputs[1] or 0:.0f} tokens)"
    return ""


def _offered(load: LoadSpec) -> LoadSpec:
    return msgspec.structs.replace(load, warm_up=0)  # a longer warm-up is the same load


def _amount(load: LoadSpec) -> str:
    return f"{load.requests} requests" if load.requests is not None else f"{load.duration or 0:g} s"


def _median(scenario: ScenarioResult, value: Callable[[RequestRecord], int | None]) -> float | None:
    known = _known([value(record) for record in scenario.records if record.phase == "measured"])
    return statistics.median(known) if known else None


def _notes(sides: Sequence[Sequence[RunResult]], labels: Sequence[str]) -> list[str]:
    """Models and machines that differ, scenarios left out, checks that failed."""
    notes = []
    models = list(dict.fromkeys(run.model for side in sides for run in side))
    if len(models) > 1:
        notes.append(f"The models differ: {', '.join(models)}.")
    machines = [run.machine.get("gpu") or run.machine.get("cpu") for side in sides for run in side]
    named = list(dict.fromkeys(str(machine) for machine in machines if machine))
    if len(named) > 1:
        notes.append(f"The machines differ: {', '.join(named)}.")
    every = [{s.name for s in run.scenarios if s.complete} for side in sides for run in side]
    left_out = sorted(every[0].union(*every) - every[0].intersection(*every))
    if left_out:
        notes.append(f"Left out, because not every result has them: {', '.join(left_out)}.")
    for label, side in zip(labels, sides, strict=True):
        failed: dict[str, None] = {}
        for run in side:
            failed |= dict.fromkeys(check.name for check in run.checks if check.level == "fail")
            failed |= {
                f"{s.name}: {check.name}": None for s in run.scenarios for check in s.checks if check.level == "fail"
            }
        if failed:
            notes.append(f"{label}'s figures must not be used where a self-check failed: {', '.join(failed)}.")
    return notes


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
