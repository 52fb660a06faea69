from __future__ import annotations

import pytest
from tests.engine.paged_runner import Bench, alone, bench, request

from firsttoken.engine.step_cost import StepCost
from firsttoken.errors import ConfigError


def rows(run: Bench, step: int = -1) -> list[tuple[str, int, int, int]]:
    """A launched step: (request id, index, start, tokens) a row."""
    return [
        (row.seq.request.request_id, row.seq.index, row.start, row.num_tokens) for row in run.runner.plans[step].rows
    ]


def test_a_prompt_runs_at_once_when_nothing_decodes() -> None:
    run = bench(max_step_ms=1.0, step_cost=StepCost(fixed_ms=5.0, token_ms=1.0))
    run.engine.add(request("a", [1] * 50, max_tokens=2))
    run.step()
    assert rows(run) == [("a", 0, 0, 50)]


def test_a_prompt_over_the_token_cap_is_chunked_and_decodes_come_first() -> None:
    run = bench(max_num_batched_tokens=20, enable_prefix_caching=False)
    run.engine.add(request("a", [1] * 5, max_tokens=20, ignore_eos=True))
    run.step()
    run.engine.add(request("b", [2] * 50, max_tokens=2, ignore_eos=True))
    for _ in range(3):
        run.step()
    assert [rows(run, i) for i in (1, 2, 3)] == [
        [("a", 0, 5, 1), ("b", 0, 0, 19)],
        [("a", 0, 6, 1), ("b", 0, 19, 19)],
        [("a", 0, 7, 1), ("b", 0, 38, 12)],
    ]
    assert not run.runner.plans[2].rows[1].samples
    assert run.runner.plans[3].rows[1].samples


def test_a_chunk_beside_decoding_rows_is_cut_to_the_time() -> None:
    run = bench(max_step_ms=10.0, step_cost=StepCost(fixed_ms=4.0, token_ms=0.25), min_chunk=4)
    run.engine.add(request("a", [1] * 5, max_tokens=20, ignore_eos=True))
    run.step()
    run.engine.add(request("b", [2] * 50, max_tokens=2))
    run.step()
    assert rows(run) == [("a", 0, 5, 1), ("b", 0, 0, 23)]


def test_a_chunk_that_is_cut_makes_the_step_a_multiple_of_the_grain() -> None:
    cost = StepCost(fixed_ms=4.0, token_ms=0.25)  # 24 tokens in 10 ms
    run = bench(max_step_ms=10.0, step_cost=cost, min_chunk=4, token_grain=10)
    run.engine.add(request("a", [1] * 5, max_tokens=20, ignore_eos=True))
    run.step()
    run.engine.add(request("b", [2] * 50, max_tokens=2))
    for _ in range(3):
        run.step()
    assert [rows(run, i)[1:] for i in (1, 2, 3)] == [[("b", 0, 0, 19)], [("b", 0, 19, 19)], [("b", 0, 38, 12)]]


def test_a_prompt_moves_on_even_where_decoding_alone_takes_all_the_time() -> None:
    run = bench(max_step_ms=1.0, step_cost=StepCost(fixed_ms=4.0, token_ms=0.25), min_chunk=4)
    run.engine.add(request("a", [1] * 5, max_tokens=40, ignore_eos=True))
    run.step()
    run.engine.add(request("b", [2] * 10, max_tokens=1))
    run.engine.add(request("c", [3] * 10, max_tokens=1))
    for _ in range(4):
        run.step()
    assert [rows(run, i)[1:] for i in range(1, 5)] == [
        [("b", 0, 0, 4)],
        [("b", 0, 4, 4)],
        [("b", 0, 8, 2)],
        [("c", 0, 0, 4)],
    ]


def test_requests_are_served_by_priority_and_then_by_arrival() -> None:
    run = bench(max_num_seqs=1)
    asked = [("late", 0, 3.0), ("early", 0, 2.0), ("urgent", -1, 4.0), ("idle", 5, 1.0)]
    for request_id, priority, arrival in asked:
        run.engine.add(request(request_id, [1, 2], priority=priority, arrival=arrival, max_tokens=1, ignore_eos=True))
    run.run()
    assert [plan.rows[0].seq.request.request_id for plan in run.runner.plans] == ["urgent", "early", "late", "idle"]


def test_requests_that_arrived_together_are_served_in_the_order_of_their_admission() -> None:
    run = bench(max_num_seqs=1)
    for i in range(11):
        run.engine.add(request(f"r{i}", [1, 2], arrival=1.0, max_tokens=1, ignore_eos=True))
    run.run()
    assert [plan.rows[0].seq.request.request_id for plan in run.runner.plans] == [f"r{i}" for i in range(11)]


def test_the_latest_sequence_is_preempted_when_blocks_run_out_and_both_end_right() -> None:
    run = bench(num_blocks=8, max_model_len=32)
    first = request("first", [1] * 7, arrival=1.0, max_tokens=16, ignore_eos=True)
    latest = request("latest", [2] * 7, arrival=2.0, max_tokens=16, ignore_eos=True)
    run.engine.add(first)
    run.engine.add(latest)
    run.run()
    assert run.counter("num_preemptions_total") >= 1
    assert run.ids("first") == alone(first, 0, run.engine.info)[0]
    assert run.ids("latest") == alone(latest, 0, run.engine.info)[0]
    preempted = {row.seq.request.request_id for plan in run.runner.plans for row in plan.rows if row.epoch}
    assert preempted == {"latest"}


def test_of_unequal_priorities_the_lesser_is_preempted_though_it_came_first() -> None:
    run = bench(num_blocks=8, max_model_len=32)
    run.engine.add(request("idle", [1] * 7, arrival=1.0, priority=1, max_tokens=16, ignore_eos=True))
    run.engine.add(request("urgent", [2] * 7, arrival=2.0, priority=0, max_tokens=16, ignore_eos=True))
    run.run()
    preempted = {row.seq.request.request_id for plan in run.runner.plans for row in plan.rows if row.epoch}
    assert preempted == {"idle"}


def test_a_preempted_sequence_keeps_its_in_flight_token() -> None:
    run = bench(max_num_seqs=1)
    idle = request("idle", [1] * 4, priority=1, max_tokens=12, ignore_eos=True)
    run.engine.add(idle)
    for _ in range(4):
        run.step()
    before = len(run.ids("idle"))
    run.engine.add(request("urgent", [2] * 4, max_tokens=1, ignore_eos=True))
    run.step()  # takes the slot, while a token of the other is in flight
    assert run.counter("num_preemptions_total") == 1
    assert len(run.ids("idle")) == before + 1
    run.run()
    assert run.ids("idle") == alone(idle, 0, run.engine.info)[0]


def test_an_urgent_prompt_takes_blocks_from_a_running_one_of_lesser_priority() -> None:
    run = bench(num_blocks=10, max_model_len=40)
    idle = request("idle", [1] * 30, priority=1, max_tokens=8, ignore_eos=True)
    run.engine.add(idle)
    for _ in range(3):
        run.step()
    run.engine.add(request("urgent", [2] * 20, max_tokens=2, ignore_eos=True))
    run.engine.add(request("patient", [3] * 20, priority=1, max_tokens=2, ignore_eos=True))
    run.run()
    first_tokens = [request_id for request_id, _ in run.outputs]
    assert first_tokens == ["idle", "urgent", "patient"]
    assert run.counter("num_preemptions_total") == 1
    assert run.ids("idle") == alone(idle, 0, run.engine.info)[0]


def test_a_large_prompt_is_not_starved_by_small_ones_behind_it() -> None:
    run = bench(num_blocks=12, max_model_len=48)
    run.engine.add(request("running", [1] * 8, max_tokens=6, ignore_eos=True))
    run.step()
    run.engine.add(request("large", [2] * 40, max_tokens=2, ignore_eos=True))
    for i in range(20):
        run.engine.add(request(f"small{i}", [3 + i % 9] * 4, max_tokens=2, ignore_eos=True))
        run.step()
    run.run()
    finished = [row.seq.request.request_id for plan in run.runner.plans for row in plan.rows if row.fresh]
    assert finished.index("large") == 1


def test_a_short_prompt_does_not_wait_for_all_of_a_long_one() -> None:
    run = bench(max_model_len=200)
    run.engine.add(request("long", [1] * 199, max_tokens=1))
    run.step()
    for name, length in (("short", 8), ("longer", 100), ("last", 8)):
        run.engine.add(request(name, [2] * length, max_tokens=1))
    run.step()
    run.step()
    # The short one ends within the half that is left to it; the next would not, and lets none pass.
    assert [rows(run, i) for i in range(3)] == [
        [("long", 0, 0, 64)],
        [("long", 0, 64, 56), ("short", 0, 0, 8)],
        [("long", 0, 120, 64)],
    ]


def test_of_two_long_prompts_the_first_is_not_slowed_by_the_second() -> None:
    run = bench(max_model_len=120)
    for name in ("first", "second"):
        run.engine.add(request(name, [1] * 100, max_tokens=1))
    run.run()
    assert [rows(run, i) for i in range(2)] == [
        [("first", 0, 0, 64)],
        [("first", 0, 64, 36), ("second", 0, 0, 28)],
    ]


def test_a_prompt_waits_where_a_running_sequence_would_soon_be_preempted_for_it() -> None:
    run = bench(num_blocks=8, max_model_len=32)
    run.engine.add(request("running", [1] * 5, max_tokens=12, ignore_eos=True))
    run.step()
    run.engine.add(request("large", [2] * 24, max_tokens=8, ignore_eos=True))
    run.run()
    assert run.counter("num_preemptions_total") == 0


def test_siblings_wait_for_the_first_and_take_its_prompt_from_the_cache() -> None:
    run = bench()
    run.engine.add(request("r", [1, 2, 3, 4, 5, 6, 7, 8, 9], n=3, max_tokens=4, ignore_eos=True))
    run.run()
    assert rows(run, 0) == [("r", 0, 0, 9)]
    fresh = [(row.seq.index, row.start) for plan in run.runner.plans for row in plan.rows if row.fresh]
    assert fresh == [(0, 0), (1, 8), (2, 8)]
    assert [run.outputs["r", i][0].num_cached_tokens for i in range(3)] == [0, 8, 8]


def test_without_a_prefix_cache_siblings_start_together() -> None:
    run = bench(enable_prefix_caching=False)
    run.engine.add(request("r", [1] * 9, n=3, max_tokens=4))
    run.step()
    assert [(index, start) for _, index, start, _ in rows(run)] == [(0, 0), (1, 0), (2, 0)]


def test_siblings_go_on_when_the_first_is_stopped_before_its_prompt_is_computed() -> None:
    run = bench()
    asked = request("r", [1] * 9, n=2, max_tokens=4, ignore_eos=True)
    run.engine.add(asked)
    run.engine.stop("r", 0)
    run.run()
    assert run.ids("r", 1) == alone(asked, 1, run.engine.info)[0]


def test_a_sequence_is_never_scheduled_past_its_length() -> None:
    run = bench()
    run.engine.add(request("r", [1] * 4, max_tokens=3, ignore_eos=True))
    run.run()
    assert [rows(run, i) for i in range(len(run.runner.plans))] == [
        [("r", 0, 0, 4)],
        [("r", 0, 4, 1)],
        [("r", 0, 5, 1)],
    ]


def test_an_end_token_wastes_one_row_at_most() -> None:
    run = bench()
    asked = request("r", [1, 2, 3], max_tokens=40, stop_token_ids=tuple(range(1, 24)))
    run.engine.add(asked)
    run.run()
    assert len(run.ids("r")) == 1
    assert len(run.runner.plans) == 2


def test_fewer_batched_tokens_than_sequences_is_refused() -> None:
    with pytest.raises(ConfigError, match="--max-num-batched-tokens 7 must be at least --max-num-seqs 8"):
        bench(max_num_batched_tokens=7)
