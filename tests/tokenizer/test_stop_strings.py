from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.stop_strings import StopSet, StopStrings

letters = st.text(alphabet="abc", max_size=30)
stop_lists = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), min_size=1, max_size=4)


def run(stops: list[str], pieces: list[str], *, include: bool = False) -> tuple[str, str | None]:
    matcher = StopStrings(stops, include=include)
    sent = "".join([matcher.push(piece) for piece in pieces])
    return sent + matcher.finish(), matcher.matched


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


@given(stop_lists, letters, st.lists(st.integers(0, 40)), st.booleans())
def test_text_is_cut_at_the_earliest_match_however_it_is_cut_into_pieces(
    stops: list[str], text: str, cuts: list[int], include: bool
) -> None:
    matches = [(text.find(stop), len(stop), stop) for stop in stops if stop in text]
    sent, matched = run(stops, pieces_of(text, cuts), include=include)
    if not matches:
        assert (sent, matched) == (text, None)
    else:
        place, _, stop = min(matches)
        assert (sent, matched) == (text[:place] + (stop if include else ""), stop)


@given(stop_lists, letters)
def test_nothing_of_a_stop_string_is_ever_sent(stops: list[str], text: str) -> None:
    matcher = StopStrings(stops)
    final, _ = run(stops, [text])
    sent = ""
    for char in text:
        sent += matcher.push(char)
        assert final.startswith(sent)


@given(stop_lists, letters)
def test_only_what_may_become_a_stop_string_is_held_back(stops: list[str], text: str) -> None:
    matcher = StopStrings(stops)
    sent = matcher.push(text)
    if matcher.matched is None:
        held = text[len(sent) :]
        assert len(held) < max(map(len, stops))
        assert not held or any(stop.startswith(held) for stop in stops)


def test_the_earlier_match_wins_though_it_is_later_in_the_list() -> None:
    assert run(["world", "hello"], ["say hello world"]) == ("say ", "hello")


def test_of_two_stop_strings_that_begin_together_the_shorter_wins() -> None:
    assert run(["abc", "ab"], ["xabc"]) == ("x", "ab")


def test_text_behind_a_stop_string_is_dropped() -> None:
    matcher = StopStrings(["\n\n"])
    assert matcher.push("one\n") == "one"
    assert matcher.push("\ntwo") == ""
    assert matcher.push("three") == ""
    assert matcher.finish() == ""
    assert matcher.matched == "\n\n"


@pytest.mark.parametrize("stop", ["]", "^", "\\", "-", "[a-z]", "."])
def test_stop_strings_are_no_patterns(stop: str) -> None:
    assert run([stop], ["a|", stop, "b"]) == ("a|", stop)


def test_a_held_beginning_is_sent_when_the_text_ends() -> None:
    assert run(["END"], ["the E", "N"]) == ("the EN", None)


def test_one_set_serves_several_texts_at_once() -> None:
    stops = StopSet(["one", "two"])
    first, second = StopStrings(stops), StopStrings(stops)
    assert (first.push("a tw"), second.push("b on")) == ("a ", "b ")
    assert (first.push("o"), second.push("!")) == ("", "on!")
    assert (first.matched, second.matched) == ("two", None)


def test_many_long_stop_strings_over_a_text_that_keeps_beginning_them_take_little_time() -> None:
    """A scan of every string at every piece took seconds."""
    stops = [f"{'a' * 500}{chr(0x4E00 + i)}" for i in range(32)] + [f"b{'a' * 400}{i}" for i in range(32)]
    start = time.perf_counter()
    sent, matched = run(stops, ["aaa"] * 2000)
    assert (sent, matched) == ("a" * 6000, None)
    assert time.perf_counter() - start < 1.0
