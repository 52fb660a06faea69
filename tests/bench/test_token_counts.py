from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.bench.token_counts import count_by_ends, spread, token_ends_of
from firsttoken.errors import ConfigError


def test_one_token_a_chunk_and_an_end_token_without_text() -> None:
    assert spread(3, ["a", "bb", "c"]) == [1, 1, 1]
    assert spread(4, ["a", "bb", "c"]) == [1, 1, 1]


def test_grouped_tokens_follow_the_length_of_the_text() -> None:
    assert spread(8, ["a", "abcdefghijk"]) == [1, 7]


def test_fewer_tokens_than_chunks_leave_some_without() -> None:
    counts = spread(2, ["a", "b", "c", "d"])
    assert sum(counts) == 2
    assert min(counts) == 0


@given(st.integers(0, 2000), st.lists(st.text(max_size=20), min_size=1, max_size=60))
def test_no_token_is_lost_or_made_up(total: int, texts: list[str]) -> None:
    counts = spread(total, texts)
    assert len(counts) == len(texts)
    assert min(counts) >= 0
    assert sum(counts) == (total if total != len(texts) + 1 else len(texts))
    if total >= len(texts):
        assert min(counts) >= 1


def test_a_token_belongs_to_the_chunk_of_its_last_character() -> None:
    assert count_by_ends(["he", "llo ", "you"], [5, 6, 9]) == [0, 2, 1]


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(ConfigError, match=r"is not a tokenizer\.json"):
        token_ends_of(path)
