"""Who gives way to whom, and who waits for what."""

from __future__ import annotations

from tests.engine.paged_runner import bench, request


def test_the_one_of_the_worst_rank_is_preempted_whichever_was_admitted_last() -> None:
    run = bench(num_blocks=8, max_model_len=32)
    run.engine.add(request("idle", [1] * 7, priority=1, max_tokens=16, ignore_eos=True))
    run.step()
    run.engine.add(request("urgent", [2] * 7, priority=0, max_tokens=16, ignore_eos=True))
    run.run()
    preempted = {row.seq.request.request_id for plan in run.runner.plans for row in plan.rows if row.epoch}
    assert preempted == {"idle"}


def test_nobody_is_preempted_for_blocks_that_are_about_to_return() -> None:
    run = bench(num_blocks=8)
    run.engine.add(request("idle", [1] * 7, priority=1, max_tokens=5, ignore_eos=True))
    run.engine.add(request("gone", [2] * 19, priority=1, max_tokens=5, ignore_eos=True))
    run.step()
    run.engine.abort("gone")  # while its step is queued
    run.engine.add(request("urgent", [3] * 15, priority=0, max_tokens=1))
    run.run()
    assert run.counter("num_preemptions_total") == 0
    assert list(run.outputs) == [("idle", 0), ("urgent", 0)]


def test_siblings_wait_for_all_of_a_prompt_that_takes_several_steps() -> None:
    run = bench(max_num_batched_tokens=16)
    run.engine.add(request("r", [i % 20 + 1 for i in range(41)], n=2, max_tokens=2, ignore_eos=True))
    run.run()
    assert [run.outputs["r", i][0].num_cached_tokens for i in range(2)] == [0, 40]
