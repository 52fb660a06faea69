from __future__ import annotations

import pytest

from firsttoken.engine.step_cost import StepCost, StepLoad

COST = StepCost(fixed_ms=2.0, token_ms=0.01, pair_ms=1e-5, context_ms=1e-4, free_tokens=100)


def test_tokens_ride_free_up_to_the_knee() -> None:
    assert COST.ms(StepLoad(decode_rows=1)) == COST.ms(StepLoad(decode_rows=1, prefill_tokens=99)) == 2.0
    assert COST.ms(StepLoad(decode_rows=1, prefill_tokens=100)) == pytest.approx(2.01)


def test_contexts_cost_what_they_hold() -> None:
    load = StepLoad(decode_rows=2, decode_context=1000).with_chunk(start=50, num_tokens=10)
    assert load == StepLoad(2, 1000, 10, 10 * 50 + 55)
    assert COST.ms(load) == pytest.approx(2.0 + 0.1 + 555e-5)


@pytest.mark.parametrize("start", [0, 1000, 30_000])
@pytest.mark.parametrize("budget", [2.2, 5.0, 50.0])
def test_the_largest_chunk_fits_and_one_more_token_does_not(start: int, budget: float) -> None:
    load = StepLoad(decode_rows=8, decode_context=800)
    chunk = COST.largest_chunk(load, start, budget, 100_000)
    assert COST.ms(load.with_chunk(start, chunk)) <= budget < COST.ms(load.with_chunk(start, chunk + 1))


def test_a_chunk_is_no_larger_than_asked_for_and_none_where_the_time_is_spent() -> None:
    load = StepLoad(decode_rows=8)
    assert COST.largest_chunk(load, 0, 1000.0, 7) == 7
    assert COST.largest_chunk(load, 0, 1.0, 7) == 0


def test_a_fit_finds_the_coefficients_behind_exact_points() -> None:
    loads = [StepLoad(rows, rows * 500) for rows in (1, 8, 64, 128)]
    loads += [StepLoad(0, 0).with_chunk(start, tokens) for tokens in (100, 512, 4096) for start in (0, 8192)]
    fitted = StepCost.fit((load, COST.ms(load)) for load in loads)
    assert fitted.free_tokens == 100
    for load in loads:
        assert fitted.ms(load) == pytest.approx(COST.ms(load))


def test_a_fit_of_noisy_points_never_promises_negative_time() -> None:
    points = [(StepLoad(decode_rows=rows), 3.0 - rows / 100) for rows in (1, 2, 4, 8)]
    fitted = StepCost.fit(points)
    assert min(fitted.fixed_ms, fitted.token_ms, fitted.pair_ms, fitted.context_ms) >= 0
    assert fitted.ms(StepLoad(decode_rows=4)) == pytest.approx(2.96, rel=0.05)


def test_a_fit_needs_a_point() -> None:
    with pytest.raises(ValueError, match="at least one"):
        StepCost.fit([])


def test_one_point_fits_itself() -> None:
    assert StepCost.fit([(StepLoad(decode_rows=1), 4.0)]).ms(StepLoad(decode_rows=1)) == pytest.approx(4.0)


def test_a_pair_that_was_not_measured_costs_as_much_as_decode_context() -> None:
    points = [(StepLoad(rows, rows * context), 5.0 + 2 * rows + 0.005 * rows * context) for rows, context in
              ((1, 16), (8, 16), (8, 2048))]  # fmt: skip
    fitted = StepCost.fit(points)
    assert fitted.pair_ms == 0.0
    bounded = fitted.with_pairs_as_context()
    assert bounded.pair_ms == pytest.approx(0.005)
    assert bounded.largest_chunk(StepLoad(8, 4096), 4096, 200.0, 2048) < 16
    assert COST.with_pairs_as_context().pair_ms == COST.context_ms
