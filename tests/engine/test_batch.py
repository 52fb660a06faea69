from __future__ import annotations

import pytest
import torch

from firsttoken.engine.batch import BatchBuilder
from firsttoken.engine.sequence import Sequence
from firsttoken.engine.step_plan import PlanRow, StepPlan
from firsttoken.types import GenerateRequest, SamplingParams


def sequence(
    prompt: list[int],
    output: list[int] | None = None,
    *,
    slot: int = 0,
    blocks: list[int] | None = None,
    prompt_logprobs: int | None = None,
) -> Sequence:
    request = GenerateRequest(
        request_id="r", prompt_token_ids=prompt, sampling=SamplingParams(prompt_logprobs=prompt_logprobs)
    )
    seq = Sequence(
        request=request,
        index=0,
        seed=0,
        token_ids=prompt + (output or []),
        num_prompt_tokens=len(prompt),
        max_total_tokens=100,
    )
    seq.slot = slot
    seq.block_ids = blocks or []
    return seq


def row(seq: Sequence, start: int, count: int, *, fresh: bool = False) -> PlanRow:
    return PlanRow(seq, seq.epoch, start, count, start + count >= len(seq.token_ids), fresh)


def builder() -> BatchBuilder:
    return BatchBuilder(max_num_seqs=4, max_model_len=64, block_size=4)


def test_decode_rows_and_a_prefill_chunk_share_a_batch() -> None:
    decoding = sequence([1, 2, 3, 4, 5], [6], slot=2, blocks=[7, 3])
    waiting = sequence([10, 11, 12, 13, 14, 15, 16], slot=1, blocks=[5, 0])
    batch = builder().build(StepPlan(9, (row(decoding, 5, 1, fresh=True), row(waiting, 2, 5, fresh=True))))
    assert batch.step_id == 9
    assert batch.token_ids.tolist() == [6, 12, 13, 14, 15, 16]
    assert batch.positions.tolist() == [5, 2, 3, 4, 5, 6]
    assert batch.kv_slots.tolist() == [3 * 4 + 1, 22, 23, 0, 1, 2]
    assert batch.num_decode_rows == 1
    assert batch.query_start.tolist() == [0, 1, 6]
    assert batch.context_lens.tolist() == [6, 7]
    assert batch.block_tables.tolist() == [[7, 3], [5, 0]]
    assert batch.host_rows == [(0, 1, 6), (1, 6, 7)]
    assert batch.sampling_indices == [0, 1]
    assert batch.sampling_tokens.tolist() == [0, 5]


def test_a_token_still_on_the_device_comes_from_the_slots_last_id() -> None:
    first = sequence([1, 2], [3], slot=3, blocks=[0])
    second = sequence([4, 5], slot=1, blocks=[1])
    build = builder()
    build.build(StepPlan(0, (row(second, 0, 2, fresh=True), row(first, 0, 3, fresh=True))))
    batch = build.build(StepPlan(1, (row(first, 3, 1), row(second, 2, 1))))
    last_ids = torch.tensor([90, 91, 92, 93])
    assert batch.input_ids(last_ids).tolist() == [93, 91]
    first.token_ids.append(33)  # now the host knows it
    assert build.build(StepPlan(2, (row(first, 3, 1),))).input_ids(last_ids).tolist() == [33]


def test_block_tables_follow_growth_and_a_new_holder_of_the_slot() -> None:
    build = builder()
    seq = sequence([1, 2, 3], slot=0, blocks=[4])
    build.build(StepPlan(0, (row(seq, 0, 3, fresh=True),)))
    seq.token_ids += [4, 5]
    seq.block_ids.append(9)
    assert build.build(StepPlan(1, (row(seq, 4, 1),))).block_tables.tolist() == [[4, 9]]
    other = sequence([1, 2, 3, 4, 5], slot=0, blocks=[6, 8])
    assert build.build(StepPlan(2, (row(other, 0, 5, fresh=True),))).block_tables.tolist() == [[6, 8]]


def test_a_chunk_that_ends_inside_the_prompt_does_not_sample() -> None:
    seq = sequence([1, 2, 3, 4, 5, 6], slot=0, blocks=[0, 1])
    batch = builder().build(StepPlan(0, (row(seq, 0, 4, fresh=True),)))
    assert batch.sampling_indices == []
    assert len(batch.sampling_tokens) == 0


@pytest.mark.parametrize(("start", "count", "targets"), [(0, 3, [2, 3, 4]), (3, 2, [5]), (4, 1, None)])
def test_prompt_logprobs_score_the_prompts_next_tokens_only(start: int, count: int, targets: list[int] | None) -> None:
    seq = sequence([1, 2, 3, 4, 5], slot=0, blocks=[0, 1], prompt_logprobs=2)
    batch = builder().build(StepPlan(0, (row(seq, start, count, fresh=True),)))
    if targets is None:
        assert batch.prompt_logprobs == []
        return
    (wanted,) = batch.prompt_logprobs
    assert wanted.targets.tolist() == targets
    assert wanted.tokens.tolist() == list(range(len(targets)))
    assert (wanted.row, wanted.count) == (0, 2)


def test_rope_lengths_do_not_depend_on_chunks() -> None:
    seq = sequence([1, 2, 3, 4, 5], [6, 7], slot=0, blocks=[0, 1])
    build = builder()
    whole = build.build(StepPlan(0, (row(seq, 0, 7, fresh=True),))).lengths.tolist()
    parts = [build.build(StepPlan(1, (row(seq, s, n),))).lengths.tolist() for s, n in ((0, 2), (2, 4), (6, 1))]
    assert whole == [5, 5, 5, 5, 5, 6, 7]
    assert [length for part in parts for length in part] == whole


def test_the_attention_plan_carries_the_batch() -> None:
    seq = sequence([1, 2, 3, 4, 5], slot=0, blocks=[2, 1])
    batch = builder().build(StepPlan(0, (row(seq, 0, 5, fresh=True),)))
    plan = batch.attention_plan(torch.arange(5), 4, 0.5)
    assert (plan.num_tokens, plan.num_rows, plan.num_decode_rows) == (5, 1, 0)
    assert plan.slots.tolist() == [8, 9, 10, 11, 4]
    assert plan.query_start.dtype == plan.context_lens.dtype == plan.block_tables.dtype == torch.int32
    assert plan.host_rows == [(0, 5, 5)]
