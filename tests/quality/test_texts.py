"""What ships: texts in three languages under a stated licence, and needles that are where they should be."""

from __future__ import annotations

from importlib.resources import files

import pytest

from firsttoken.quality import needle
from firsttoken.quality.passages import KINDS, passages, questions


def test_three_texts_of_each_kind_ship_with_their_licence() -> None:
    found = passages()
    assert [each.kind for each in found] == [kind for kind in KINDS for _ in range(3)]
    assert 20_000 < sum(len(each.text.encode()) for each in found) < 40_000
    assert all(sum("\u4e00" <= c <= "\u9fff" for c in each.text) > 500 for each in found if each.kind == "chinese")
    assert len(questions()) == 12
    assert "Apache License, Version 2.0" in files("firsttoken.quality").joinpath("texts", "NOTICE.txt").read_text()


def count(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("length", [100, 1000, 20_000])
def test_a_needle_lies_at_each_depth_of_a_text_of_the_length_asked_for(length: int) -> None:
    haystack = [each.text for each in passages() if each.kind == "english"]
    made = needle.prompts(haystack, length, count)
    for depth, prompt in zip(needle.DEPTHS, made, strict=True):
        assert length - 150 < count(prompt.text) <= length
        assert prompt.text.count(prompt.number) == 1
        before = count(prompt.text[: prompt.text.index(prompt.number)])
        assert before / length == pytest.approx(depth, abs=0.2 if length < 1000 else 0.1)
        assert prompt.text.endswith(" is")
    assert len({prompt.number for prompt in made}) == len(made)


def test_a_needle_is_found_by_its_number_alone() -> None:
    prompt = needle.prompts(["One. Two."], 60, count)[0]
    assert prompt.found_in(f" {prompt.number}. And so on")
    assert not prompt.found_in(" 1234, I believe")
