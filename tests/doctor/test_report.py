"""Findings on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.doctor.report import fill


def test_a_command_stays_whole_on_one_line() -> None:
    lines = fill("If nobody meant it: `sudo nvidia-smi -i 0 -pl 700`, or nothing.", 40).splitlines()
    assert lines == ["If nobody meant it:", "`sudo nvidia-smi -i 0 -pl 700`, or", "nothing."]


@given(st.lists(st.text("ab", min_size=1, max_size=9), max_size=30), st.integers(9, 40))
def test_lines_keep_within_the_width_and_lose_no_word(words: list[str], width: int) -> None:
    filled = fill(" ".join(words), width)
    assert filled.split() == words
    assert all(len(line) <= width for line in filled.splitlines())


@pytest.mark.parametrize("text", ["", "one"])
def test_short_texts_are_as_they_were(text: str) -> None:
    assert fill(text, 10) == text
