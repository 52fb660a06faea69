"""Charts: axes with round numbers, points where they belong."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from firsttoken.bench.svg import WIDTH, Mark, Series, Span, apart, bars, chart, linear_axis, log_axis, timeline
from firsttoken.bench.words import Words, same

NAME = same("x")


@pytest.mark.parametrize("values", [[0.0], [1e-9], [3.0, 17.0], [98.2], [123456.0], []])
def test_a_linear_axis_holds_its_values_between_round_numbers(values: list[float]) -> None:
    axis = linear_axis(NAME, values)
    assert axis.low == 0
    assert all(value <= axis.high * (1 + 1e-9) for value in values)
    ticks = axis.ticks(6)
    assert 2 <= len(ticks) <= 8
    step = ticks[1] - ticks[0]
    assert all(later - before == pytest.approx(step) for before, later in pairwise(ticks))
    assert float(f"{step:.6e}"[0]) in (1, 2, 5)


def test_an_axis_may_begin_near_values_that_lie_far_from_zero() -> None:
    axis = linear_axis(NAME, [3.57, 3.62], from_zero=False)
    assert 3.5 < axis.low < 3.5701
    assert 3.6199 < axis.high < 3.7


@pytest.mark.parametrize("values", [[2.0], [0.003, 900.0], [40.0, 41.0], [], [0.0]])
def test_a_logarithmic_axis_has_few_ticks_within_itself(values: list[float]) -> None:
    axis = log_axis(NAME, values)
    ticks = axis.ticks(7)
    assert 1 <= len(ticks) <= 7
    assert all(axis.low <= tick <= axis.high for tick in ticks)
    assert all(0 <= axis.place(value) <= 1 for value in values)


def test_points_keep_their_order_on_the_page() -> None:
    series = Series(NAME, [(1, 1), (2, 4), (4, 2)], dots=True, tips=["a", "<b>", "c"])
    drawn = chart([series], log_axis(NAME, [1, 2, 4], at=[1, 2, 4]), linear_axis(NAME, [4]), label="f")
    places = [(float(x), float(y)) for x, y in re.findall(r'<circle class="f0" cx="([\d.]+)" cy="([\d.]+)"', drawn)]
    assert places[1][0] - places[0][0] == pytest.approx(places[2][0] - places[1][0], abs=0.2)
    assert places[1][1] < places[2][1] < places[0][1]
    assert all(0 < x < WIDTH for x, _ in places)
    assert "<title>&lt;b&gt;</title>" in drawn


def test_a_legend_stands_only_where_there_is_something_to_tell_apart() -> None:
    one, other = Series(Words("one", "一"), [(0, 1)]), Series(Words("two", "二"), [(0, 2)], colour=1)
    axes = linear_axis(NAME, [1]), linear_axis(NAME, [2])
    assert "legend" not in chart([one], *axes, label="f")
    both = chart([one, other], *axes, label="f")
    assert both.index("legend") < both.index("<svg")
    assert "二" in both


def test_a_timelines_bars_begin_and_end_in_time() -> None:
    spans = [Span(0.0, 1.0, 0, 1), Span(1.0, 4.0, 0, 0), Span(2.0, 2.0, 1, 4)]
    drawn = timeline(spans, [(1.0, 0, "")], [(NAME, 1)], linear_axis(NAME, [4.0]), 2, NAME, "f")
    found = re.findall(r'<rect class="f(\d)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"', drawn)
    (_, x0, y0, w0), (_, x1, y1, w1), (_, _, y2, w2) = [(c, float(x), float(y), float(w)) for c, x, y, w in found]
    assert x1 == pytest.approx(x0 + w0, abs=0.2)
    assert w1 == pytest.approx(3 * w0, abs=0.3)
    assert y0 == y1 < y2
    assert w2 > 0  # too short to see, and drawn all the same


def test_a_bar_beyond_the_end_is_cut_there_and_says_its_number() -> None:
    drawn = bars([(NAME, 0.5, "50 %", 0), (NAME, 3.0, "300 %", 4)], linear_axis(NAME, [1.0]), "f", mark=1.0)
    widths = [float(width) for width in re.findall(r'<rect class="f\d"[^>]* width="([\d.]+)"', drawn)]
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.01)
    assert ">300 %</text>" in drawn


def test_no_marks_are_apart() -> None:
    assert apart([], linear_axis(same("s"), [1.0])) == []


def test_names_of_marks_never_run_into_each_other_and_no_mark_is_lost() -> None:
    x = linear_axis(NAME, [40.0])
    marks = apart([Mark(0.0, "quicksort", above=True), Mark(1.0, "sweep@1", above=True), Mark(20.0, "blurbs")], x)
    assert [(mark.at, mark.text) for mark in marks] == [(0.0, ""), (1.0, "sweep@1"), (20.0, "blurbs")]
