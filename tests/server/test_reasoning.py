"""Thoughts and the answer, told apart however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.server.answer_parts import Answer, Part, ToolCallStart
from firsttoken.server.reasoning import ReasoningParser
from firsttoken.server.tools.hermes import HermesParser


def read(parser: ReasoningParser, text: str, size: int = 1) -> list[Part]:
    parts: list[Part] = []
    for place in range(0, len(text), size):
        parts += parser.push(text[place : place + size])
    return parts + parser.finish()


def both(parts: list[Part]) -> tuple[str, str]:
    answer = Answer.of(parts)
    return answer.reasoning, answer.text


@given(size=st.integers(1, 30))
def test_thoughts_and_answer_come_without_the_space_between(size: int) -> None:
    opened = ReasoningParser(None, thinks=False, shown=True)
    assert both(read(opened, "<think>\nHm, 好 <\n\nso </thin.\n</think>\n\nIt is <b>.\n", size)) == (
        "Hm, 好 <\n\nso </thin.",
        "It is <b>.\n",
    )
    by_prompt = ReasoningParser(None, thinks=True, shown=True)
    assert both(read(by_prompt, "\nHm.\n</think>4", size)) == ("Hm.", "4")


@pytest.mark.parametrize(
    ("text", "thinks", "expected"),
    [
        ("Four.", False, ("", "Four.")),
        (" <thi", False, ("", " <thi")),
        ("4 <think>5</think>", False, ("", "4 <think>5</think>")),
        ("<think>\n\n</think>\n\nFour.", False, ("", "Four.")),
        ("<think>Never done </th", False, ("Never done </th", "")),
        (" <thi", True, ("<thi", "")),
        ("Never done\n", True, ("Never done", "")),
        ("</think>Four.", True, ("", "Four.")),
        ("\n", False, ("", "\n")),
        ("", True, ("", "")),
    ],
)
def test_what_is_missing_of_the_form_is_no_fault(text: str, thinks: bool, expected: tuple[str, str]) -> None:
    assert both(read(ReasoningParser(None, thinks=thinks, shown=True), text)) == expected


def test_thoughts_that_are_not_wanted_are_dropped() -> None:
    assert both(read(ReasoningParser(None, thinks=True, shown=False), "Hm.</think>\nFour.")) == ("", "Four.")


def test_a_call_in_the_thoughts_is_none_and_one_behind_them_is() -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    parser = ReasoningParser(HermesParser({"add"}, streams=True, single=True), thinks=True, shown=True)
    parts = read(parser, f"I could say {call}\n</think>\n\n{call}")
    assert both(parts) == (f"I could say {call}", "")
    assert sum(isinstance(part, ToolCallStart) for part in parts) == 1
    assert parser.calls
    assert parser.over
