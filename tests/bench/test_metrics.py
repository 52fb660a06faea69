from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Literal

import pytest

from firsttoken.bench.metrics import (
    distribution,
    least_sample,
    measure,
    measure_groups,
    parse_slo,
    percentile,
    worst_token_gap,
)
from firsttoken.bench.records import STOPPED, Chunk, Phase, RequestRecord
from firsttoken.errors import ConfigError

_ids = itertools.count()


def request(
    sent: float,
    chunks: Sequence[float],
    *,
    ended: float | None = None,
    intended: float | None = None,
    completion: int | None = None,
    prompt: int | None = 10,
    cached: int | None = None,
    error: str | None = None,
    phase: Phase = "measured",
    group: str = "",
) -> RequestRecord:
    """One whose chunks came at these seconds after `sent`."""
    return RequestRecord(
        id=str(next(_ids)),
        scenario="s",
        phase=phase,
        stream=0,
        group=group,
        sent=sent,
        intended=intended,
        ended=sent + chunks[-1] if ended is None else ended,
        status=200,
        error=error,
        chunks=[Chunk(sent + at, "x", 1) for at in chunks],
        prompt_tokens=prompt,
        completion_tokens=len(chunks) if completion is None else completion,
        cached_tokens=cached,
    )


def test_figures_of_a_closed_loop() -> None:
    found = measure([request(0.0, [0.1, 0.2, 0.3], cached=4), request(1.0, [0.3, 0.5, 0.7], ended=2.0)])
    assert (found.attempted, found.succeeded, found.failed) == (2, 2, 0)
    assert found.duration == 2.0
    assert found.ttft.mean == pytest.approx(0.2)
    assert [found.tpot.minimum, found.tpot.maximum] == pytest.approx([0.1, 0.2])
    assert found.gaps.count == 4
    assert found.worst_gap.maximum == pytest.approx(0.2)
    assert [found.e2e.minimum, found.e2e.maximum] == pytest.approx([0.3, 1.0])
    assert (found.output_tokens, found.prompt_tokens, found.cached_tokens) == (6, 20, 4)
    assert (found.output_tokens_per_s, found.total_tokens_per_s, found.requests_per_s) == (3.0, 13.0, 1.0)
    assert (found.ttft_scheduled, found.e2e_scheduled, found.send_lag) == (None, None, None)
    assert found.max_in_flight == 1


def test_a_gap_that_two_tokens_share_is_not_one_tokens() -> None:
    split = request(0.0, [0.1, 0.2, 0.4, 0.53])
    split.chunks[2] = Chunk(0.4, "é", 2)  # its first half had no text
    split.token_source = "server"
    found = measure([split])
    assert found.worst_gap.maximum == pytest.approx(0.2)
    assert found.worst_token_gap is not None
    assert found.worst_token_gap.maximum == pytest.approx(0.13)
    split.chunks[2] = Chunk(0.4, "é", 0)  # a tokenizer's count: the token belongs to a later chunk
    assert worst_token_gap(split) == pytest.approx(0.2)


@pytest.mark.parametrize("source", ["spread", "asked", "none"])
def test_the_worst_token_gap_is_absent_where_nobody_counted_each_chunks_tokens(
    source: Literal["spread", "asked", "none"],
) -> None:
    spread = request(0.0, [0.1, 0.2])
    spread.token_source = source
    assert measure([spread]).worst_token_gap is None


def test_waiting_in_the_client_counts_from_the_schedule() -> None:
    found = measure([request(5.0, [0.1, 0.2], intended=4.0)])
    assert found.ttft.mean == pytest.approx(0.1)
    assert found.ttft_scheduled is not None
    assert found.ttft_scheduled.mean == pytest.approx(1.1)
    assert found.e2e_scheduled is not None
    assert found.e2e_scheduled.mean == pytest.approx(1.2)
    assert found.send_lag is not None
    assert found.send_lag.maximum == pytest.approx(1.0)


def test_warm_up_and_what_the_user_broke_off_are_left_out() -> None:
    records = [request(0.0, [9.0], phase="warm-up"), request(10.0, [0.1]), request(11.0, [0.2], error=STOPPED)]
    found = measure(records)
    assert (found.attempted, found.succeeded, found.ttft.count) == (1, 1, 1)


def test_a_failed_request_counts_as_failed_and_gives_no_latency() -> None:
    found = measure([request(0.0, [0.1, 0.2]), request(0.0, [5.0], error="boom")])
    assert (found.succeeded, found.failed, found.output_tokens) == (1, 1, 2)
    assert found.ttft.maximum == pytest.approx(0.1)
    assert found.duration == 5.0


def test_tpot_needs_two_tokens_and_two_chunks() -> None:
    found = measure([request(0.0, [0.1]), request(0.0, [0.1], completion=5), request(0.0, [0.1, 0.5], completion=5)])
    assert found.tpot.count == 1
    assert found.tpot.mean == pytest.approx(0.1)


def test_requests_in_flight_are_counted_at_their_most() -> None:
    assert (
        measure([request(0.0, [1.0]), request(0.5, [1.0]), request(1.5, [1.0]), request(2.5, [0.1])]).max_in_flight == 2
    )


def test_goodput_counts_requests_within_every_limit_from_the_schedule_on() -> None:
    records = [
        request(0.0, [0.1, 0.2, 0.3]),
        request(0.0, [0.6, 0.7, 0.8]),  # late
        request(0.0, [0.1, 0.5, 0.9]),  # slow
        request(1.0, [0.1, 0.2, 0.3], intended=0.0),  # late by the client's fault, for the user all the same
        request(0.0, [0.1], ended=4.0, error="boom"),
        request(0.0, [0.1]),  # one token: no TPOT to miss
    ]
    found = measure(records, {"ttft": 0.5, "tpot": 0.15})
    assert found.goodput_share == pytest.approx(2 / 6)
    assert found.goodput_per_s == pytest.approx(2 / 4)
    assert measure(records, {"e2e": 0.85}).goodput_share == pytest.approx(3 / 6)
    assert measure(records, {"gap": 0.2}).goodput_share == pytest.approx(4 / 6)
    assert measure(records).goodput_share is None


def test_groups_are_measured_apart() -> None:
    records = [request(0.0, [0.1], group="background"), request(0.0, [0.9], group="arrival")]
    groups = measure_groups(records)
    assert {name: found.ttft.mean for name, found in groups.items()} == {"background": 0.1, "arrival": 0.9}
    assert measure_groups(records[:1]) == {}


def test_nothing_measured_is_no_division_by_zero() -> None:
    found = measure([])
    assert (found.attempted, found.output_tokens_per_s, found.ttft.note) == (0, 0.0, "nothing was observed")


def test_totals_are_unknown_where_one_answer_had_no_usage() -> None:
    found = measure([request(0.0, [0.1]), request(0.0, [0.1], prompt=None)])
    assert (found.prompt_tokens, found.total_tokens_per_s) == (None, None)


@pytest.mark.parametrize("p", [50, 90, 99])
def test_a_percentile_needs_a_sample_that_passes_it_with_95_percent(p: int) -> None:
    least = least_sample(p)
    assert (p / 100) ** least <= 0.05 < (p / 100) ** (least - 1)


def test_percentiles_that_the_sample_cannot_carry_are_said() -> None:
    found = distribution([float(i) for i in range(28)])
    assert (found.p50, found.p90, found.p99) == (13.5, None, None)
    assert found.note == "P90 needs 29, P99 needs 299 observations; there are 28"
    assert distribution([1.0] * 299).note is None


def test_percentiles_are_numpys() -> None:
    numpy = pytest.importorskip("numpy")
    sample = sorted(random.Random(1).random() for _ in range(997))
    for q in (0.0, 0.5, 0.9, 0.99, 1.0):
        assert percentile(sample, q) == pytest.approx(float(numpy.quantile(sample, q)), abs=1e-15)


def test_limits_are_read_in_milliseconds_and_seconds() -> None:
    assert parse_slo("ttft=500ms, tpot=50ms,e2e=2.5s") == {"ttft": 0.5, "tpot": 0.05, "e2e": 2.5}


@pytest.mark.parametrize("text", ["", "ttft", "ttft=5", "speed=5ms", "ttft=0ms", "ttft=1..2s", "ttft=1s,ttft=2s"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--slo"):
        parse_slo(text)
