from __future__ import annotations

from typing import Any

import pytest

from firsttoken.chat_messages import messages_for
from firsttoken.chat_template import ChatTemplate
from firsttoken.errors import InvalidRequest
from tests.tokenizer.templates import CHATML, PARTS, PARTS_ALONE, TRIMMING

TEXT_PARTS = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


def first(source: str, message: dict[str, Any]) -> dict[str, Any]:
    return messages_for(ChatTemplate(source), [message])[0]


def test_parts_are_joined_for_a_template_that_reads_text() -> None:
    assert first(CHATML, {"role": "user", "content": TEXT_PARTS})["content"] == "one\ntwo"
    assert first(CHATML, {"role": "tool", "content": TEXT_PARTS})["content"] == "one\ntwo"


def test_parts_stay_parts_for_a_template_that_reads_them() -> None:
    assert first(PARTS, {"role": "user", "content": TEXT_PARTS})["content"] == TEXT_PARTS
    assert first(PARTS, {"role": "user", "content": "one"})["content"] == "one"
    assert first(PARTS_ALONE, {"role": "user", "content": "one"})["content"] == TEXT_PARTS[:1]


def test_a_refusal_part_is_its_text() -> None:
    refusal = [{"type": "refusal", "refusal": "No."}]
    assert first(CHATML, {"role": "assistant", "content": refusal})["content"] == "No."


@pytest.mark.parametrize("message", [{"role": "assistant", "content": None}, {"role": "assistant"}])
def test_absent_content_is_empty(message: dict[str, Any]) -> None:
    assert first(CHATML, message)["content"] == ""


def test_null_content_stays_for_a_template_that_asks_for_it() -> None:
    source = "{% if messages[0]['content'] is none %}null{% endif %}"
    assert first(source, {"role": "assistant", "content": None})["content"] is None


def test_developer_is_system_unless_the_template_knows_it() -> None:
    assert first(CHATML, {"role": "developer", "content": ""})["role"] == "system"
    assert first("{{ messages[0].role == 'developer' }}", {"role": "developer"})["role"] == "developer"


def test_null_fields_and_empty_tool_calls_are_left_out() -> None:
    message: dict[str, Any] = {"role": "assistant", "content": "x", "name": None, "tool_calls": []}
    assert first(CHATML, message) == {"role": "assistant", "content": "x"}


def test_reasoning_is_known_by_both_names() -> None:
    assert first(CHATML, {"role": "assistant", "reasoning": "hm"})["reasoning_content"] == "hm"


@pytest.mark.parametrize(
    ("source", "given", "read"),
    [
        (TRIMMING, '{"a": 1}', {"a": 1}),
        (TRIMMING, "", {}),
        (TRIMMING, '{"a": ', '{"a": '),
        (CHATML, '{"a": 1}', '{"a": 1}'),
    ],
)
def test_arguments_are_what_the_template_prints(source: str, given: str, read: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": given}}
    made = first(source, {"role": "assistant", "tool_calls": [call]})["tool_calls"]
    assert made == [{"id": "1", "type": "function", "function": {"name": "f", "arguments": read}}]
    assert call["function"] == {"name": "f", "arguments": given}  # the caller's own is not changed


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("text", "messages[0]"),
        ({"content": "x"}, "messages[0]"),
        ({"role": "user", "content": 3}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "messages[0].content"),
        ({"role": "user", "content": [7]}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content"),
        ({"role": "assistant", "tool_calls": ["x"]}, "messages[0].tool_calls"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(message: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        first(CHATML, message)
    assert caught.value.param == param


def test_no_messages_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least one"):
        messages_for(ChatTemplate(CHATML), [])
