"""Runs and comparisons as tables in a terminal: every figure with its ceiling beneath, every flag in words."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from firsttoken.bench import units
from firsttoken.bench.compare import Comparison, Row, Unit
from firsttoken.bench.folded_checks import fold
from firsttoken.bench.records import CeilingShare, Check, Distribution, Level, Metrics, RunResult, ScenarioResult
from firsttoken.bench.statistics import Verdict

WIDE = 100  # columns of a terminal that has room for every figure

_STYLES: dict[Level, str] = {"ok": "green", "flag": "yellow", "fail": "bold red"}
_VERDICTS: dict[Verdict, str] = {"better": "bold green", "worse": "bold red", "equivalent": "", "undecided": "dim"}
_WORDS: dict[Level, str] = {"ok": "passed", "flag": "flagged", "fail": "FAILED"}


def print_run(console: Console, result: RunResult) -> None:
    """The figures, then what the self-checks say."""
    server = " ".join(part for part in (result.server.kind, result.server.version) if part)
    head = f"{result.model or '?'} at {result.url}" + (f" ({server})" if server else "")
    if result.ready_seconds is not None:
        head += f", ready {units.seconds(result.ready_seconds)} after its launch"
    console.print(Text(head, style="bold"), soft_wrap=True)
    console.print(run_table(result, wide=console.width >= WIDE))
    if not any(scenario.shares for scenario in result.scenarios):
        console.print(Text(why_no_ceilings(result), style="dim"), soft_wrap=True)
    if not_counted := [one.name for one in result.scenarios if _tokens_uncounted(one)]:
        sentence = (
            f"No worst token gap for {', '.join(not_counted)}: each chunk's tokens were not counted. `--extra-body "
            "'{\"return_token_ids\": true}'` makes firsttoken and vLLM count them; --tokenizer does it here."
        )
        console.print(Text(sentence, style="dim"), soft_wrap=True)
    if any(_only_mean(scenario) for scenario in result.scenarios):
        console.print(
            Text("Times are medians; ~ is a mean, where there are too few requests for a median.", style="dim")
        )
    print_checks(console, result)


def why_no_ceilings(result: RunResult) -> str:
    """One sentence for a run without ceilings."""
    checks = (check for scenario in result.scenarios for check in scenario.checks)
    return next((one.text for one in checks if one.name == "roofline"), "No ceilings: nothing was measured.")


def run_table(result: RunResult, wide: bool = True) -> Table:
    """One row a scenario and load, and one for each of its groups.

    A figure's second line is its share of the ceiling, and the ceiling. Without `wide`, two columns are left out.
    """
    extra = (["worst gap"], ["end to end"]) if wide else ([], [])
    names = ["TTFT", "TPOT", *extra[0], "output tok/s", *extra[1], "answered", "checks"]
    table = plain_table("scenario", *names, gap=2 if wide else 1)
    for scenario in result.scenarios:
        level = worst_level(scenario.checks)
        name = Text.assemble(scenario.name, ("\n" + scenario.load.label, "dim"))
        if not scenario.complete:
            name.append(", broken off", style="yellow")
        verdict = Text(_WORDS[level], style=_STYLES[level]) if scenario.checks else Text(units.NOTHING)
        if scenario.metrics is None:
            table.add_row(name, *[units.NOTHING] * (len(names) - 1), verdict)
            continue
        table.add_row(name, *_cells(scenario.metrics, scenario.shares, wide), verdict)
        for group, metrics in scenario.group_metrics.items():
            table.add_row(Text(f"  {group}"), *_cells(metrics, [], wide), "")
    return table


def print_comparison(console: Console, found: Comparison) -> None:
    """The before/after table: a figure a row, a side a column, and the verdict where pairs allow one."""
    for scenario, load in dict.fromkeys((row.scenario, row.load) for row in found.rows):
        columns = [*found.labels, *(["B over A, with its interval", "verdict"] if found.paired else ["change"])]
        table = plain_table(f"{scenario}, {load}" if scenario else "the run", *columns)
        for row in found.rows:
            if (row.scenario, row.load) == (scenario, load):
                table.add_row(row.figure.name, *comparison_cells(row, found.paired))
        console.print(table)
        console.print()
    if found.paired and found.confidence is not None and found.margin is not None:
        claim = f"Intervals hold together with {found.confidence:.0%}; within {found.margin:.0%} counts as the same."
        console.print(Text(claim, style="dim"), soft_wrap=True)
    for note in found.notes:
        console.print(Text(note), soft_wrap=True)


def comparison_cells(row: Row, paired: bool) -> list[Text]:
    """The values of every side, then what may be said of them."""
    cells = [Text(_in_unit(row.figure.unit, value)) for value in row.values]
    if not paired:
        changes = " ".join(units.NOTHING if one is None else f"{one:+.1%}" for one in row.change[1:])
        return [*cells, Text(changes)]
    if row.interval is None:
        change = row.change[1] if len(row.change) > 1 else None
        return [*cells, Text(units.NOTHING if change is None else f"{change:+.1%}", style="dim"), Text("")]
    one = row.interval
    low, high = (f"{bound - 1:+.1%}" if bound < 10 else "?" for bound in (one.low, one.high))
    return [*cells, Text(f"{one.ratio - 1:+.1%}  [{low}, {high}]"), Text(one.verdict, style=_VERDICTS[one.verdict])]


def _in_unit(unit: Unit, value: float | None) -> str:
    if value is None:
        return units.NOTHING
    if unit == "s":
        return units.seconds(value)
    if unit == "share":
        return units.percent(value)
    if unit == "bytes":
        return units.size(value)
    return f"{units.digits(value)} {unit}"


def plain_table(first: str, *others: str, gap: int = 2) -> Table:
    """The look of all tables here: no frame, numbers to the right, `gap` columns of space between them."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def print_checks(console: Console, result: RunResult) -> None:
    """Failed and flagged self-checks in words; a single line where all passed."""
    named = [("", check) for check in result.checks]
    named += [(scenario.name, check) for scenario in result.scenarios for check in scenario.checks]
    worth = sorted((one for one in named if one[1].level != "ok"), key=lambda one: one[1].level)
    for one in fold(worth):
        check, where = one.check, f"{one.where.en}: " if one.scenarios else ""
        line = Text.assemble((f"{_WORDS[check.level]:<8}", _STYLES[check.level]), f"{where}{check.text}")
        console.print(line, soft_wrap=True)
    for sentence in result.absent:
        console.print(Text(f"absent  {sentence}", style="dim"), soft_wrap=True)
    if named and not worth:
        console.print(Text("Every self-check passed.", style="green"))


def worst_level(checks: Sequence[Check]) -> Level:
    levels = {check.level for check in checks}
    return "fail" if "fail" in levels else "flag" if "flag" in levels else "ok"


def run_level(result: RunResult) -> Level:
    """The worst verdict of a whole run."""
    return worst_level([*result.checks, *(check for scenario in result.scenarios for check in scenario.checks)])


def _tokens_uncounted(scenario: ScenarioResult) -> bool:
    metrics = scenario.metrics
    return metrics is not None and metrics.worst_gap.count > 0 and metrics.worst_token_gap is None


def _only_mean(scenario: ScenarioResult) -> bool:
    found = [scenario.metrics, *scenario.group_metrics.values()]
    return any(one is not None and one.ttft.p50 is None and one.ttft.count > 0 for one in found)


def _cells(metrics: Metrics, shares: Sequence[CeilingShare], wide: bool) -> list[Text]:
    ceilings = {share.figure: share for share in shares}
    gap = [_gap(metrics)] if wide else []
    whole = [_figure(typical(metrics.e2e), None)] if wide else []
    return [
        _figure(typical(metrics.ttft), ceilings.get("ttft")),
        _figure(typical(metrics.tpot), ceilings.get("tpot")),
        *gap,
        _figure(units.rate(metrics.output_tokens_per_s), ceilings.get("output_tokens_per_s")),
        *whole,
        Text(f"{metrics.succeeded:,}/{metrics.attempted:,}", style="bold red" if metrics.failed else ""),
    ]


def typical(one: Distribution) -> str:
    """The median; the mean, marked so, where the sample carries no median."""
    if one.p50 is not None:
        return units.seconds(one.p50)
    return f"~{units.seconds(one.mean)}" if one.mean is not None else units.NOTHING


def _gap(metrics: Metrics) -> Text:
    """The worst gap and, below it, the worst token gap where one is known."""
    text, of_token = Text(units.seconds(metrics.worst_gap.maximum)), metrics.worst_token_gap
    if of_token is not None:
        text.append(f"\n{units.seconds(of_token.maximum)} a token", style="dim")
    return text


def _figure(value: str, share: CeilingShare | None) -> Text:
    text = Text(value)
    if share is not None:
        is_rate = share.figure == "output_tokens_per_s"
        best = units.rate(share.ceiling) if is_rate else units.seconds(share.ceiling)
        text.append(f"\n{units.percent(share.share)} of {best}", style="bold red" if share.share > 1 else "dim")
    return text
