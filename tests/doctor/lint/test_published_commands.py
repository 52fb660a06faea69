"""Sixty commands and more as people publish them: valid ones pass, every planted fault is named, corrections pass."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.cli.lint import own_table
from firsttoken.doctor.lint.linter import Checked, Linter

_DATA = tomllib.loads((Path(__file__).parent / "published.toml").read_text(encoding="utf-8"))
_LINTER = Linter(firsttoken=own_table)


def wrong(found: list[Checked]) -> set[str]:
    """The rules that say more than a note."""
    return {finding.rule for checked in found for finding in checked.findings if finding.level != "note"}


@pytest.mark.parametrize("case", _DATA["valid"], ids=lambda case: case["text"].strip()[:60])
def test_a_valid_command_gets_no_warning(case: dict[str, Any]) -> None:
    assert wrong(_LINTER.check_text(case["text"])) == set()


@pytest.mark.parametrize("case", _DATA["fault"], ids=lambda case: case["text"].strip()[:60])
def test_a_planted_fault_is_named_and_its_correction_passes(case: dict[str, Any]) -> None:
    found = _LINTER.check_text(case["text"])
    assert set(case["rules"]) <= wrong(found)
    right = []
    for checked in found:
        if wrong([checked]):
            assert checked.corrected is not None
            right.append(checked.corrected)
        else:
            right.append(checked.text)
    assert wrong(_LINTER.check_text("\n".join(right))) == set()


def test_the_collection_is_as_large_as_it_says() -> None:
    assert len(_DATA["valid"]) + len(_DATA["fault"]) >= 60


_WORDS = sorted({word for case in (*_DATA["valid"], *_DATA["fault"]) for word in case["text"].split()})


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([case["text"] for case in (*_DATA["valid"], *_DATA["fault"])]),
    st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from([*_WORDS, "'", "$(", "\\", "--", "-", "=", "|"])), max_size=4
    ),
)
def test_whatever_is_put_into_a_command_what_is_called_right_is(text: str, more: list[tuple[int, str]]) -> None:
    words = text.split(" ")
    for place, word in more:
        words.insert(place, word)
    for checked in _LINTER.check_text(" ".join(words)):
        rules = {finding.rule for finding in checked.findings} - {"port-taken", "model-name-unknown"}
        if checked.corrected and rules == {finding.rule for finding in checked.findings}:
            assert wrong(_LINTER.check_text(checked.corrected)) == set()
