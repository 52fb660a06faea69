from __future__ import annotations

import pytest
from tests.engine.paged_runner import request

from firsttoken.engine.block_pool import BlockPool
from firsttoken.engine.sequence import Sequence


def sequence(tokens: list[int], *, salt: str | None = None) -> Sequence:
    asked = request("r", tokens, cache_salt=salt)
    return Sequence(
        request=asked,
        index=0,
        seed=0,
        token_ids=list(tokens),
        num_prompt_tokens=len(tokens),
        max_total_tokens=1000,
    )


def admit(pool: BlockPool, seq: Sequence, *, step: int = -1) -> int:
    """Admits and counts all tokens as computed in that step; returns the blocks taken from the prefix cache."""
    matched = pool.match_prefix(seq)
    assert pool.fits(len(seq.token_ids), matched, 0)
    pool.admit(seq, len(seq.token_ids), matched)
    seq.num_computed = len(seq.token_ids)
    seq.last_step = step
    return len(matched)


def compute(pool: BlockPool, tokens: list[int], *, salt: str | None = None) -> None:
    """Runs a sequence to its end, so that its blocks are unreferenced and cached."""
    seq = sequence(tokens, salt=salt)
    admit(pool, seq)
    pool.commit(seq, 0, len(tokens))
    pool.release(seq)
    pool.check([])


def test_blocks_are_found_after_their_commit_and_not_before() -> None:
    pool = BlockPool(8, 4)
    first, second = sequence([1, 2, 3, 4, 5]), sequence([1, 2, 3, 4, 6])
    admit(pool, first)
    assert pool.match_prefix(second) == []
    pool.commit(first, 0, 5)
    assert pool.match_prefix(second) == first.block_ids[:1]
    assert admit(pool, second) == 1
    pool.check([first, second])


def test_a_block_filled_by_several_rows_is_found_once_full() -> None:
    pool = BlockPool(8, 4)
    seq = sequence([1, 2, 3, 4, 5])
    admit(pool, seq)
    pool.commit(seq, 0, 3)
    assert pool.match_prefix(sequence([1, 2, 3, 4, 9])) == []
    pool.commit(seq, 3, 5)
    assert pool.match_prefix(sequence([1, 2, 3, 4, 9])) == seq.block_ids[:1]


def test_a_fully_cached_prompt_keeps_one_token_to_compute() -> None:
    pool = BlockPool(8, 4)
    compute(pool, [1, 2, 3, 4, 5, 6, 7, 8])
    assert len(pool.match_prefix(sequence([1, 2, 3, 4, 5, 6, 7, 8]))) == 1
    assert len(pool.match_prefix(sequence([1, 2, 3, 4, 5, 6, 7, 8, 9]))) == 2


def test_a_block_is_found_only_behind_the_same_parents() -> None:
    pool = BlockPool(8, 4)
    compute(pool, [1, 1, 1, 1, 2, 2, 2, 2, 3])
    assert pool.match_prefix(sequence([2, 2, 2, 2, 2, 2, 2, 2, 3])) == []
    assert len(pool.match_prefix(sequence([1, 1, 1, 1, 3, 3, 3, 3, 3]))) == 1


@pytest.mark.parametrize(("mine", "theirs"), [(None, "a"), ("a", None), ("a", "b"), ("", None)])
def test_salts_share_nothing(mine: str | None, theirs: str | None) -> None:
    pool = BlockPool(8, 4)
    compute(pool, [1, 2, 3, 4, 5], salt=mine)
    assert pool.match_prefix(sequence([1, 2, 3, 4, 5], salt=theirs)) == []
    assert len(pool.match_prefix(sequence([1, 2, 3, 4, 5], salt=mine))) == 1


def test_without_prefix_caching_nothing_is_found() -> None:
    pool = BlockPool(8, 4, enable_prefix_caching=False)
    compute(pool, [1, 2, 3, 4, 5])
    assert pool.match_prefix(sequence([1, 2, 3, 4, 5])) == []


def test_blocks_past_the_shared_limit_belong_to_one_sequence() -> None:
    pool = BlockPool(8, 4, max_shared_tokens=7)
    seq = sequence([1, 2, 3, 4, 5, 6, 7])
    admit(pool, seq)
    seq.token_ids += [8, 9]  # its answer crosses the limit
    pool.commit(seq, 0, 7)
    pool.grow(seq)
    pool.commit(seq, 7, 9)
    assert pool.match_prefix(sequence([1, 2, 3, 4, 5, 6, 7])) == seq.block_ids[:1]
    assert pool.match_prefix(seq) == seq.block_ids[:1]


def test_a_prompt_past_the_shared_limit_shares_nothing() -> None:
    pool = BlockPool(8, 4, max_shared_tokens=7)
    compute(pool, [1, 2, 3, 4, 5, 6, 7])
    assert pool.match_prefix(sequence([1, 2, 3, 4, 5, 6, 7, 8])) == []
    compute(pool, [2] * 8)
    assert pool.match_prefix(sequence([2] * 7)) == []


def test_the_same_content_computed_twice_is_known_once() -> None:
    pool = BlockPool(8, 4)
    first, second = sequence([1, 2, 3, 4, 5]), sequence([1, 2, 3, 4, 5])
    admit(pool, first)
    admit(pool, second)
    pool.commit(first, 0, 5)
    pool.commit(second, 0, 5)
    assert pool.match_prefix(sequence([1, 2, 3, 4, 5])) == first.block_ids[:1]
    pool.check([first, second])
    pool.release(first)
    pool.release(second)
    pool.check([])
    assert pool.num_free == 8


def test_the_least_recently_used_prefix_is_evicted_and_its_end_first() -> None:
    pool = BlockPool(4, 4)
    compute(pool, [1] * 8)
    compute(pool, [2] * 8)
    compute(pool, [1] * 5)  # its first block is used again
    seq = sequence([3] * 8)
    admit(pool, seq)
    assert len(pool.match_prefix(sequence([1] * 9))) == 1
    assert len(pool.match_prefix(sequence([2] * 9))) == 1
    pool.check([seq])


def test_a_shared_block_lives_as_long_as_one_sequence_holds_it() -> None:
    pool = BlockPool(4, 4)
    compute(pool, [1] * 5)
    first, second = sequence([1] * 5), sequence([1] * 6)
    assert admit(pool, first) == admit(pool, second) == 1
    shared = first.block_ids[0]
    pool.release(first)
    pool.check([second])
    taker = sequence([2] * 8)
    admit(pool, taker)
    assert second.block_ids[0] == shared
    assert shared not in taker.block_ids
    pool.check([second, taker])


def test_released_blocks_return_when_the_last_queued_step_is_collected() -> None:
    pool = BlockPool(4, 4)
    seq, other = sequence([1] * 8), sequence([2] * 8)
    admit(pool, seq, step=1)
    admit(pool, other, step=0)
    pool.release(seq)
    pool.release(other)
    assert (pool.num_free, pool.num_returning) == (0, 4)
    pool.collected(0)
    assert (pool.num_free, pool.num_returning) == (2, 2)
    pool.check([])
    pool.collected(1)
    assert (pool.num_free, pool.num_returning) == (4, 0)
    pool.check([])


def test_a_block_on_its_way_back_can_be_shared_again() -> None:
    pool = BlockPool(4, 4)
    seq = sequence([1] * 5)
    admit(pool, seq, step=0)
    pool.commit(seq, 0, 5)
    pool.release(seq)
    again = sequence([1] * 6)
    assert admit(pool, again) == 1
    assert pool.num_returning == 1  # the unshared one
    pool.check([again])
    pool.collected(0)
    pool.check([again])
    assert pool.num_free == 2


def test_what_fits_leaves_matched_blocks_out_of_the_free_ones() -> None:
    pool = BlockPool(4, 4)
    compute(pool, [1] * 12)
    seq = sequence([1] * 13)
    matched = pool.match_prefix(seq)
    assert len(matched) == 3
    assert pool.fits(13, matched, 0)
    assert not pool.fits(13, matched, 1)
    assert not pool.fits(17, matched, 0)


def test_what_is_about_to_return_can_be_counted_as_room() -> None:
    pool = BlockPool(4, 4)
    seq = sequence([1] * 12)
    admit(pool, seq, step=0)
    pool.release(seq)
    assert not pool.fits(16, [], 0)
    assert pool.fits(16, [], 0, returning=True)


def test_a_matched_block_that_is_about_to_return_is_not_counted_as_room_too() -> None:
    pool = BlockPool(4, 4)
    seq = sequence([1] * 9)
    admit(pool, seq, step=0)
    pool.commit(seq, 0, 9)
    pool.release(seq)
    matched = pool.match_prefix(sequence([1] * 13))
    assert len(matched) == 2
    assert pool.fits(16, matched, 0, returning=True)
    assert not pool.fits(17, matched, 0, returning=True)


def test_usage_is_the_share_in_use() -> None:
    pool = BlockPool(4, 4)
    seq = sequence([1] * 5)
    admit(pool, seq)
    assert pool.usage == 0.5
    pool.commit(seq, 0, 5)
    pool.release(seq)
    assert pool.usage == 0


def test_check_sees_a_table_that_the_pool_does_not_know() -> None:
    pool = BlockPool(4, 4)
    seq = sequence([1] * 5)
    admit(pool, seq)
    other = sequence([1] * 5)
    other.block_ids = list(seq.block_ids)
    with pytest.raises(AssertionError, match="2 tables list it"):
        pool.check([seq, other])
