"""Which graph a step takes on a GPU: plain arithmetic over batches, tested without one."""

from __future__ import annotations

import pytest

from firsttoken.engine.batch import Batch, BatchBuilder
from firsttoken.engine.sequence import Sequence
from firsttoken.engine.step_plan import PlanRow, StepPlan
from firsttoken.engine.step_shape import (
    StepShape,
    buckets,
    decode_buckets,
    is_long,
    library_span,
    most_numbers,
    rounded_rows,
    sampled_rows,
    tiles_of,
    unpadded_shape,
)
from firsttoken.types import GenerateRequest, SamplingParams


def _batch(*spans: tuple[int, int]) -> Batch:
    """spans: (tokens that are there already, new ones) of each sequence, decode rows first."""
    rows = []
    for slot, (start, count) in enumerate(spans):
        ids = list(range(start + count))
        request = GenerateRequest(request_id=str(slot), prompt_token_ids=ids, sampling=SamplingParams())
        seq = Sequence(request, 0, 0, ids, len(ids), len(ids) + 9)
        seq.slot = slot
        seq.block_ids = list(range(-(-len(ids) // 16)))
        rows.append(PlanRow(seq, 0, start, count, True, True))
    return BatchBuilder(max_num_seqs=300, max_model_len=300_000, block_size=16).build(StepPlan(0, tuple(rows)))


def _taken(batch: Batch, seqs: int = 256, tokens: int = 32768) -> StepShape | None:
    return next((shape for shape in buckets(seqs, tokens) if shape.fit(batch) is not None), None)


@pytest.mark.parametrize(("rows", "bucket"), [(1, 1), (2, 2), (3, 4), (16, 16), (17, 32), (200, 256)])
def test_decode_rows_take_the_smallest_graph_that_holds_them(rows: int, bucket: int) -> None:
    assert _taken(_batch(*[(40, 1)] * rows)) == StepShape(bucket, True)


def test_a_short_prompt_runs_as_single_tokens_beside_decode_rows() -> None:
    assert _taken(_batch((0, 5))) == StepShape(16, False)
    assert _taken(_batch((40, 1), (70, 1), (0, 20))) == StepShape(32, False)
    assert _taken(_batch((4096, 30))) == StepShape(32, False), "a follow-up over a cached prefix"


@pytest.mark.parametrize(
    ("spans", "single", "chunk"),
    [([(0, 300)], 0, 512), ([(9, 1)] * 10 + [(0, 512)], 16, 512), ([(9, 1)] * 17 + [(30, 700), (0, 300)], 64, 1024)],
)
def test_longer_chunks_take_a_mixed_graph(spans: list[tuple[int, int]], single: int, chunk: int) -> None:
    shape = _taken(_batch(*spans))
    assert shape is not None
    assert (shape.single, shape.chunk, shape.fused) == (single, chunk, True)


def test_what_no_graph_holds_runs_without_one() -> None:
    assert _taken(_batch((0, 2049))) is None
    assert _taken(_batch(*[(9, 1)] * 257, (0, 300)), seqs=512) is None, "more decode rows than a mixed graph has"
    assert _taken(_batch(*[(0, 17)] * 120)) is None, "more tiles than a mixed graph has"


def test_no_graph_is_made_that_the_limits_rule_out() -> None:
    shapes = buckets(max_num_seqs=4, max_num_batched_tokens=64)
    assert {shape.single for shape in shapes if shape.decodes} == {1, 2, 4}
    assert max(shape.rows for shape in shapes) < 128


def test_decode_graphs_are_of_the_sizes_asked_for_up_to_the_first_that_holds_all() -> None:
    assert decode_buckets(10, (24, 8, 12, 3)) == [3, 8, 12]
    assert decode_buckets(30, (24, 8)) == [8, 24], "more rows than that run without a graph of their own"
    shapes = buckets(10, 2048, (3, 8, 500))
    assert [shape.single for shape in shapes if shape.decodes] == [3, 8, 500]
    assert max(shape.size for shape in shapes if shape.decodes) <= most_numbers(10, 1, (3, 8, 500))


@pytest.mark.parametrize(("seqs", "tokens"), [(1, 1), (3, 64), (200, 1100), (64, 4096), (256, 32768)])
def test_the_hosts_buffer_holds_every_graph_and_every_step_without_one(seqs: int, tokens: int) -> None:
    most = most_numbers(seqs, tokens)
    assert all(shape.size <= most for shape in buckets(seqs, tokens))
    assert most >= 3 * tokens + 2 * (tokens // 16)


def test_tiles_cover_each_chunk_once_and_never_two_sequences() -> None:
    batch = _batch((50, 1), (0, 40), (7, 16), (3, 1))
    tiles = tiles_of(batch, 1, shift=15)
    assert tiles == [(16, 16), (32, 16), (48, 8), (56, 16), (72, 1)]


def test_steps_without_a_graph_have_few_row_counts() -> None:
    counts = rounded_rows(32768)
    assert counts[-1] == 32768
    assert len(counts) < 60
    for tokens in (2, 65, 300, 513, 4000, 4097, 32768):
        shape, tiles = unpadded_shape(_batch((9, 1), (0, tokens)), None)
        assert shape.rows in rounded_rows(40000)
        assert shape.rows >= tokens + 1
        assert tiles[-1][0] + tiles[-1][1] == tokens + 1
    assert unpadded_shape(_batch((9, 1), (9, 1)), None)[0].rows == 2, "decode rows alone take the kernels of few rows"


@pytest.mark.parametrize(("wanted", "rows"), [(1, 1), (5, 5), (16, 16), (17, 32), (33, 64), (256, 256), (300, 300)])
def test_logits_are_made_for_row_counts_that_decode_graphs_have(wanted: int, rows: int) -> None:
    assert sampled_rows(wanted) == rows


def test_long_contexts_are_read_in_larger_tiles() -> None:
    long = _batch((9, 1), (8192, 1024))
    assert is_long(long)
    assert unpadded_shape(long, None)[1][0] == (1, 32)
    short = _batch((9, 1), (4096, 1024))
    assert not is_long(short)
    assert unpadded_shape(short, None)[1][0] == (1, 16)


def test_the_library_takes_the_beginning_of_a_lone_fresh_prompt_in_few_lengths() -> None:
    assert library_span(_batch((0, 4096))) == (0, 4096)
    assert library_span(_batch((0, 4600))) == (0, 4096)
    assert library_span(_batch((9, 1), (0, 3000))) is None, "beside a decode row"
    assert library_span(_batch((0, 2047))) is None, "too short"
    assert library_span(_batch((16, 4096))) is None, "it has a cached past"
    assert library_span(_batch((0, 4096), (0, 2048))) is None, "two prompts"
