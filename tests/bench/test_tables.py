"""Runs in a terminal, live and afterwards, and as CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.bench import sides
from tests.bench.made_up_run import made_up_run

from firsttoken.bench.compare import compare
from firsttoken.bench.csv_export import write_csv
from firsttoken.bench.events import Note, Progress, ScenarioFinished, ScenarioStarted
from firsttoken.bench.live import LiveView, figures_of
from firsttoken.bench.records import CeilingShare, Check, Distribution
from firsttoken.bench.table import print_comparison, print_run, run_level


def printed(width: int = 110, **changes: object) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=width, highlight=False), out


def test_every_figure_has_its_ceiling_beneath_it_and_fits_the_terminal() -> None:
    for width in (80, 110):
        console, out = printed(width)
        print_run(console, made_up_run())
        text = out.getvalue()
        assert "51 % of 1.83 ms" in text
        assert "Every self-check passed." in text
        assert "…" not in text
        assert "  background" in text  # a scenario's groups have rows of their own
    assert "absent  gpu0: this card has no sensor for energy_j." in text


def test_the_worst_token_gap_stands_below_the_gap_and_where_it_is_absent_that_is_said() -> None:
    run = made_up_run()
    first = run.scenarios[0].metrics
    assert first is not None
    assert first.worst_token_gap is not None
    first.worst_token_gap = Distribution(count=1, maximum=0.0525)
    console, out = printed()
    print_run(console, run)
    assert "52.5 ms a token" in out.getvalue()
    assert "No worst token gap" not in out.getvalue()
    first.worst_token_gap = None
    console, out = printed()
    print_run(console, run)
    assert "No worst token gap for quicksort: each chunk's tokens were not counted." in out.getvalue()


def test_a_failed_check_is_printed_in_words_before_the_flags() -> None:
    checks = [
        Check(name="cache", level="flag", text="A tenth came from the cache."),
        Check(name="client", level="fail", text="The client was the limit."),
    ]
    console, out = printed()
    run = made_up_run(checks=checks)
    print_run(console, run)
    text = out.getvalue()
    assert text.index("FAILED  quicksort: The client was") < text.index("flagged quicksort: A tenth")
    assert run_level(run) == "fail"
    assert run_level(made_up_run(checks=checks[:1])) == "flag"


def test_names_with_brackets_are_printed_as_they_are() -> None:
    console, out = printed()
    run = made_up_run(checks=[Check(name="errors", level="flag", text="The server said [bold]no[/bold].")])
    run.model = "[red]x"
    print_run(console, run)
    assert "[red]x at" in out.getvalue()
    assert "[bold]no[/bold]" in out.getvalue()


def test_a_comparison_shows_both_sides_their_change_and_that_nothing_is_claimed() -> None:
    before, after = sides.run(sides.scenario(ttft=0.02)), sides.run(sides.scenario(ttft=0.01))
    console, out = printed()
    print_comparison(console, compare([before, after], ["old", "new"]))
    (line,) = [line.split() for line in out.getvalue().splitlines() if line.startswith("TTFT ")]
    assert line == ["TTFT", "20.0", "ms", "10.0", "ms", "-50.0%"]
    assert "no difference is claimed" in out.getvalue()


def test_csv_has_a_line_a_scenario_and_a_line_a_request(tmp_path: Path) -> None:
    run = made_up_run()
    run.scenarios[0].records[0].error = "=HYPERLINK(1)"
    scenarios, requests = write_csv(tmp_path / "run.csv", run)
    with scenarios.open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    names = [(row["scenario"], row["group"]) for row in rows]
    groups = [("intruder", "arrival"), ("intruder", "background")]
    assert names == [*((scenario.name, "") for scenario in run.scenarios), *groups]
    assert [float(row["ttft_maximum"]) for row in rows[-2:]] == pytest.approx([0.997, 0.03])
    assert (float(rows[0]["gpu_percent"]) > 90, rows[-1]["gpu_percent"]) == (True, "")
    assert float(rows[0]["tpot_ceiling"]) == 0.00183
    metrics = run.scenarios[0].metrics
    assert metrics is not None
    assert float(rows[0]["ttft_p50"]) == metrics.ttft.p50
    assert metrics.worst_token_gap is not None
    assert float(rows[0]["worst_token_gap_maximum"]) == metrics.worst_token_gap.maximum
    assert rows[0]["ttft_p90"] == ""  # too few requests for it
    with requests.open(encoding="utf-8-sig") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == sum(len(scenario.records) for scenario in run.scenarios)
    assert float(lines[1]["worst_token_gap"]) == float(lines[1]["worst_gap"])  # one token a chunk
    assert lines[0]["error"] == "'=HYPERLINK(1)"  # a spreadsheet must not run what a server said


def progress(**changes: object) -> Progress:
    fields: dict[str, object] = {
        "name": "q", "phase": "measured", "elapsed": 10.0, "finished": 5, "failed": 0, "planned": 20,
        "output_tokens": 2560, "ttft": 0.0351,
    }  # fmt: skip
    return Progress(**{**fields, **changes})  # type: ignore[arg-type]  # a test's own mistakes show at once


def test_progress_says_what_is_done_how_fast_and_how_long_it_takes_still() -> None:
    assert figures_of(progress()) == "5/20 · 256 tok/s · TTFT 35.1 ms · 30 s left"
    assert figures_of(progress(failed=2)).startswith("5/20 · 2 failed")
    assert figures_of(progress(planned=None)) == "5 done · 256 tok/s · TTFT 35.1 ms"
    assert figures_of(progress(finished=0, output_tokens=0, ttft=None)) == "0/20"
    assert figures_of(progress(phase="warm-up")) == "warming up, 5 done"


def test_without_a_terminal_lines_are_few_and_plain() -> None:
    now = 0.0
    console, out = printed()
    result = made_up_run().scenarios[0]
    with LiveView(console, clock=lambda: now) as view:
        view(Note("[x] ready"))
        view(ScenarioStarted("quicksort", "Quicksort", "1 in flight", 20, 1, 3))
        for _ in range(100):
            now += 0.2
            view(progress())
        view(ScenarioFinished(result, resumed=True))
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["[x] ready", "[1/3] quicksort, 1 in flight"]
    assert len(lines) in (4, 5)
    assert lines[-1].startswith("quicksort, 1 in flight: TTFT ")
    assert lines[-1].endswith("6/6 answered · from the earlier run")


def test_in_a_terminal_the_bar_is_gone_at_the_end() -> None:
    out = io.StringIO()
    console = Console(file=out, width=110, force_terminal=True, highlight=False)
    with LiveView(console) as view:
        view(ScenarioStarted("quicksort", "Quicksort", "1 in flight", 20, 1, 3))
        view(progress())
        assert "5/20 · 256 tok/s" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")  # the line is wiped


def test_a_figure_above_its_ceiling_stands_out() -> None:
    run = made_up_run()
    run.scenarios[0].shares = [CeilingShare(figure="tpot", measured=0.001, ceiling=0.002, share=2.0, bound="memory")]
    out = io.StringIO()
    print_run(Console(file=out, width=110, force_terminal=True, highlight=False), run)
    assert "\x1b[1;31m200 % of 2.00 ms" in out.getvalue()
