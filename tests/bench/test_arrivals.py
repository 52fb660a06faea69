from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import pytest

from firsttoken.bench.arrivals import arrival_times, read_trace
from firsttoken.bench.records import LoadSpec
from firsttoken.errors import ConfigError


def test_a_constant_rate_does_not_drift() -> None:
    times = arrival_times(LoadSpec(rate=3.0, arrivals="constant", requests=3001), seed=1)
    assert times[0] == 0.0
    assert times[3000] == 1000.0


def test_poisson_gaps_are_exponential_with_the_rates_mean() -> None:
    times = arrival_times(LoadSpec(rate=50.0, arrivals="poisson", requests=20_000), seed=7)
    gaps = [b - a for a, b in itertools.pairwise([0.0, *times])]
    assert statistics.fmean(gaps) == pytest.approx(0.02, rel=0.03)
    # An exponential's deviation is its mean, and 1/e of it lies above the mean.
    assert statistics.stdev(gaps) == pytest.approx(0.02, rel=0.03)
    assert sum(gap > 0.02 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.01)


def test_a_seed_repeats_its_schedule_and_another_does_not() -> None:
    load = LoadSpec(rate=5.0, arrivals="poisson", requests=10)
    assert arrival_times(load, 1) == arrival_times(load, 1)
    assert arrival_times(load, 1) != arrival_times(load, 2)


def test_a_duration_ends_the_schedule() -> None:
    times = arrival_times(LoadSpec(rate=100.0, arrivals="poisson", duration=2.0), seed=3)
    assert 150 < len(times) < 250
    assert max(times) < 2.0


def test_a_trace_is_played_in_order_and_cut() -> None:
    load = LoadSpec(arrivals="trace", trace=[2.0, 0.0, 1.0, 9.0], requests=3)
    assert arrival_times(load, 0) == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "load",
    [
        LoadSpec(arrivals="poisson", requests=3),
        LoadSpec(arrivals="constant", rate=0.0, requests=3),
        LoadSpec(arrivals="constant", rate=1.0),
    ],
)
def test_a_load_without_rate_or_end_is_refused(load: LoadSpec) -> None:
    with pytest.raises(ConfigError, match="open loop needs"):
        arrival_times(load, 0)


def test_a_trace_file_begins_at_zero(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("# seconds\n12.5\n\n10.0  # the first\n11\n")
    assert read_trace(path) == [0.0, 1.0, 2.5]


@pytest.mark.parametrize(
    ("text", "sentence"), [("1\nx\n", "line 2 of"), ("-1\n", "line 1"), ("nan", "line 1"), ("", "no times")]
)
def test_a_wrong_trace_file_is_refused_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        read_trace(path)


def test_a_missing_trace_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "none")
