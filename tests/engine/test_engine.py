from __future__ import annotations

import pytest
from tests.engine.paged_runner import EOS, alone, bench, request

from firsttoken.errors import InvalidRequest, QueueFull, Unavailable


def test_one_step_is_always_in_flight() -> None:
    run = bench()
    run.engine.add(request("r", [1, 2, 3], max_tokens=3, ignore_eos=True))
    assert run.step() == []  # the first step is queued, with nothing before it
    counts = []
    while run.engine.has_work:
        counts.append((len(run.runner.plans), sum(len(output.token_ids) for output in run.step())))
    # Before each step, so many were launched; it gave so many tokens: those of the step before the newest.
    assert counts == [(1, 1), (2, 1), (3, 1)]


def test_outputs_are_the_model_s_and_end_by_length() -> None:
    run = bench()
    asked = request("r", [1, 2, 3], max_tokens=5, ignore_eos=True)
    run.engine.add(asked)
    run.run()
    assert run.ids("r") == alone(asked, 0, run.engine.info)[0]
    assert run.reason("r") == "length"
    assert not run.engine.has_work


def test_an_end_id_stops_a_sequence_and_is_its_last_token() -> None:
    run = bench()
    asked = next(
        asked
        for first in range(1, 24)
        for asked in [request("r", [first], max_tokens=60)]
        if len(alone(asked, 0, run.engine.info)[0]) > 2 and alone(asked, 0, run.engine.info)[1] == "stop"
    )
    run.engine.add(asked)
    run.run()
    assert run.ids("r")[-1] == EOS
    last = run.outputs["r", 0][-1]
    assert (last.finish_reason, last.stop_token_id) == ("stop", EOS)
    assert [output.finish_reason for output in run.outputs["r", 0][:-1]] == [None] * (len(run.ids("r")) - 1)


def test_end_ids_can_be_ignored_and_stop_ids_still_count() -> None:
    run = bench()
    run.engine.add(request("ignored", [1, 2], max_tokens=60, ignore_eos=True))
    run.engine.add(request("stopped", [1, 2], max_tokens=60, ignore_eos=True, stop_token_ids=tuple(range(24))))
    run.run()
    assert (len(run.ids("ignored")), run.reason("ignored")) == (60, "length")
    assert (len(run.ids("stopped")), run.reason("stopped")) == (1, "stop")


def test_no_stop_id_ends_a_sequence_before_its_min_tokens() -> None:
    run = bench()
    run.engine.add(request("r", [1, 2], max_tokens=9, min_tokens=5, stop_token_ids=tuple(range(24))))
    run.run()
    assert (len(run.ids("r")), run.reason("r")) == (6, "stop")


def test_a_sequence_ends_at_the_context_s_end_when_no_length_is_given() -> None:
    run = bench(max_model_len=20)
    run.engine.add(request("r", [1] * 12, ignore_eos=True))
    run.run()
    assert (len(run.ids("r")), run.reason("r")) == (8, "length")


def test_max_tokens_0_scores_the_prompt_and_gives_no_token() -> None:
    run = bench(max_num_batched_tokens=8)
    run.engine.add(request("r", [5, 6, 7] * 6, max_tokens=0, prompt_logprobs=1))
    run.run()
    (output,) = run.outputs["r", 0]
    assert (output.token_ids, output.finish_reason) == ([], "length")
    assert output.prompt_logprobs is not None
    assert [one and one.token_id for one in output.prompt_logprobs] == [None, *([5, 6, 7] * 6)[1:]]
    assert run.counter("prompt_tokens_total") == 18
    assert run.counter("generation_tokens_total") == 0


def test_prompt_logprobs_are_whole_though_the_prompt_is_cached_and_chunked() -> None:
    run = bench(max_num_batched_tokens=8)
    prompt = [1, 2, 3, 4, 5] * 4
    run.engine.add(request("before", prompt, max_tokens=1))
    run.run()
    run.engine.add(request("r", prompt, n=2, max_tokens=3, ignore_eos=True, prompt_logprobs=0))
    run.run()
    first, *others = run.outputs["r", 0]
    assert first.prompt_logprobs is not None
    assert [one and one.logprob for one in first.prompt_logprobs] == [None, *(-float(i) for i in range(1, 20))]
    assert first.num_cached_tokens == 0
    second = run.outputs["r", 1]
    assert second[0].num_cached_tokens == 16, "what one sequence scores the others need not compute"
    assert all(output.prompt_logprobs is None for output in (*others, *second))


def test_logprobs_come_one_a_token_where_asked_for() -> None:
    run = bench()
    run.engine.add(request("with", [1, 2], max_tokens=3, ignore_eos=True, logprobs=0))
    run.engine.add(request("without", [1, 2], max_tokens=3, ignore_eos=True))
    run.run()
    for output in run.outputs["with", 0]:
        assert output.logprobs is not None
        assert [one.token_id for one in output.logprobs] == output.token_ids
    assert all(output.logprobs is None for output in run.outputs["without", 0])


def test_a_repeated_prompt_says_how_much_was_cached() -> None:
    run = bench()
    prompt = list(range(1, 14))
    for request_id in ("first", "second"):
        run.engine.add(request(request_id, prompt, max_tokens=2))
        run.run()
    assert run.outputs["first", 0][0].num_cached_tokens == 0
    assert run.outputs["second", 0][0].num_cached_tokens == 12
    assert run.ids("first") == run.ids("second")


def test_a_dialogue_s_next_turn_finds_the_answer_cached_too() -> None:
    run = bench()
    prompt = [1, 2, 3, 4, 5]
    run.engine.add(request("first", prompt, max_tokens=8, ignore_eos=True))
    run.run()
    run.engine.add(request("second", prompt + run.ids("first") + [9, 9], max_tokens=2))
    run.run()
    assert run.outputs["second", 0][0].num_cached_tokens == 12  # of 5 + 8; the 13th token's block is not full


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_an_aborted_request_gives_nothing_more_and_its_blocks_are_free_within_a_step(steps: int) -> None:
    run = bench()
    run.engine.add(request("r", [1] * 20, n=2, max_tokens=30, ignore_eos=True))
    for _ in range(steps):
        run.step()
    run.engine.abort("r")
    run.engine.check()
    if run.engine.has_work:
        assert run.step() == []
    assert not run.engine.has_work
    assert set(run.engine.stats().gauges.values()) == {0}
    assert run.engine.stats().finished["abort"] == 2


def test_a_stop_string_ends_one_sequence_as_stop_and_the_others_go_on() -> None:
    run = bench()
    run.engine.add(request("r", [1] * 6, n=2, max_tokens=10, ignore_eos=True))
    for _ in range(4):
        run.step()
    run.engine.stop("r", 0)
    run.engine.stop("r", 0)
    run.run()
    assert len(run.ids("r", 1)) == 10
    assert len(run.ids("r", 0)) < 10
    assert run.engine.stats().finished == {"stop": 1, "length": 1, "abort": 0, "error": 0}


def test_unknown_ids_are_ignored() -> None:
    run = bench()
    run.engine.abort("nobody")
    run.engine.stop("nobody", 3)
    assert run.engine.stats().finished["abort"] == 0


def test_a_failed_step_ends_its_own_sequences_and_the_engine_lives() -> None:
    run = bench()
    run.engine.add(request("old", [1, 2], max_tokens=10, ignore_eos=True))
    run.step()
    run.step()
    run.runner.fail_steps[len(run.runner.plans)] = "The GPU is out of memory."
    run.step()
    new = request("new", [3, 4], max_tokens=4, ignore_eos=True)
    run.engine.add(new)
    run.run()
    last = run.outputs["old", 0][-1]
    assert (last.finish_reason, last.error, last.token_ids) == ("error", "The GPU is out of memory.", [])
    assert run.ids("new") == alone(new, 0, run.engine.info)[0]
    assert set(run.engine.stats().gauges.values()) == {0}


def test_what_a_failed_step_computed_is_not_in_the_prefix_cache() -> None:
    run = bench()
    run.runner.fail_steps[0] = "No."
    for request_id in ("failed", "again"):
        run.engine.add(request(request_id, [1] * 9, max_tokens=2))
        run.run()
    assert run.outputs["again", 0][0].num_cached_tokens == 0


def test_a_full_queue_refuses_at_once_and_serves_those_it_took() -> None:
    run = bench(max_num_seqs=1, max_queue=2)
    run.engine.add(request("running", [1, 2], max_tokens=5, ignore_eos=True))
    run.step()
    for i in range(2):
        run.engine.add(request(f"waiting{i}", [1, 2], max_tokens=5, ignore_eos=True))
    with pytest.raises(QueueFull) as error:
        run.engine.add(request("refused", [1, 2]))
    assert error.value.retry_after >= 1
    run.run()
    assert {request_id for request_id, _ in run.outputs} == {"running", "waiting0", "waiting1"}
    run.engine.add(request("refused", [1, 2], max_tokens=1))
    run.run()
    assert len(run.ids("refused")) == 1


def test_a_burst_on_an_idle_engine_may_fill_slots_and_queue() -> None:
    run = bench(max_num_seqs=2, max_queue=1)
    for i in range(3):
        run.engine.add(request(f"r{i}", [1, 2]))
    with pytest.raises(QueueFull):
        run.engine.add(request("r3", [1, 2]))


def test_the_queue_counts_answers_and_not_requests() -> None:
    run = bench(max_num_seqs=2, max_queue=3)
    run.engine.add(request("two", [1, 2], n=2))
    with pytest.raises(QueueFull):
        run.engine.add(request("four", [1, 2], n=4))
    run.engine.add(request("three", [1, 2], n=3))
    with pytest.raises(QueueFull):
        run.engine.add(request("one more", [1, 2]))


def test_more_answers_than_the_queue_holds_are_taken_where_nothing_waits() -> None:
    run = bench(max_num_seqs=2, max_queue=1)
    run.engine.add(request("many", [1, 2], n=9, max_tokens=2, ignore_eos=True))
    with pytest.raises(QueueFull):
        run.engine.add(request("another", [1, 2], n=9))
    run.run()
    assert sorted(index for _, index in run.outputs) == list(range(9))


def test_a_draining_engine_takes_no_more_and_finishes_what_it_has() -> None:
    run = bench()
    run.engine.add(request("r", [1, 2], max_tokens=5, ignore_eos=True))
    run.engine.drain()
    with pytest.raises(Unavailable):
        run.engine.add(request("late", [1, 2]))
    run.run()
    assert len(run.ids("r")) == 5


def test_an_id_in_use_is_refused() -> None:
    run = bench()
    run.engine.add(request("r", [1, 2]))
    with pytest.raises(InvalidRequest, match="still running"):
        run.engine.add(request("r", [1, 2]))


def test_sequences_of_a_request_differ_by_seed_and_are_repeatable() -> None:
    run = bench()
    for request_id in ("a", "b"):
        run.engine.add(request(request_id, [1, 2, 3], n=3, seed=5, max_tokens=8, ignore_eos=True))
    run.run()
    answers = [run.ids("a", index) for index in range(3)]
    assert answers == [run.ids("b", index) for index in range(3)]
    assert len({tuple(answer) for answer in answers}) == 3


def test_unseeded_requests_draw_from_the_engine_s_own_stream() -> None:
    def answers(seed: int) -> list[list[int]]:
        run = bench(seed=seed)
        run.engine.add(request("r", [1, 2, 3], n=3, seed=None, max_tokens=8, ignore_eos=True))
        run.run()
        return [run.ids("r", index) for index in range(3)]

    assert answers(1) == answers(1)
    assert answers(1) != answers(2)


@pytest.mark.parametrize("seed", [-1, 2**63 - 1, 2**80])
def test_any_seed_becomes_one_that_a_device_can_hold(seed: int) -> None:
    run = bench()
    run.engine.add(request("r", [1, 2, 3], n=2, seed=seed, max_tokens=2))
    run.step()
    assert all(0 <= row.seq.seed < 2**63 for row in run.runner.plans[0].rows)
    run.run()
