from __future__ import annotations

from typing import Any

import pytest

from firsttoken.chat_template import ChatTemplate
from firsttoken.errors import InvalidRequest, ModelError
from tests.tokenizer.templates import CHATML, PARTS, PARTS_ALONE, TRIMMING

USER = [{"role": "user", "content": "Hi"}]


def render(source: str, messages: list[dict[str, Any]] | None = None, **variables: Any) -> str:
    return ChatTemplate(source).render(messages or USER, variables)


def test_blocks_leave_no_whitespace() -> None:
    assert render("  {% if true %}\nyes\n  {% endif %}\n.") == "yes\n."


def test_tojson_writes_what_python_writes() -> None:
    value = {"b": "<é>'&", "a": [1, None]}
    assert render("{{ value | tojson }}", value=value) == '{"b": "<é>\'&", "a": [1, null]}'
    assert render("{{ value | tojson(indent=2) }}", value={"a": 1}) == '{\n  "a": 1\n}'


def test_loops_may_break_and_continue() -> None:
    assert (
        render(
            "{% for n in range(9) %}{% if n == 1 %}{% continue %}{% endif %}{% if n == 3 %}{% break %}{% endif %}"
            "{{ n }}{% endfor %}"
        )
        == "02"
    )


def test_generation_blocks_are_plain_text() -> None:
    assert render("a{% generation %}{{ messages[0].content }}{% endgeneration %}b") == "aHib"


def test_a_template_may_know_the_date() -> None:
    assert len(render("{{ strftime_now('%Y') }}")) == 4


def test_a_template_that_refuses_says_why() -> None:
    with pytest.raises(InvalidRequest, match="refuses these messages: roles must alternate") as caught:
        render("{{ raise_exception('roles must alternate') }}")
    assert caught.value.param == "messages"


@pytest.mark.parametrize("source", ["{{ messages[0].content + 1 }}", "{{ nothing.at.all }}", "{{ 1 // 0 }}"])
def test_a_template_that_fails_is_a_request_error(source: str) -> None:
    with pytest.raises(InvalidRequest, match="refuses these messages"):
        render(source)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ raise_exception.__globals__.keys() }}", "unsafe"),
        ("{{ messages.append(1) }}", "not safely callable|unsafe"),
        ("{{ range(10000000) | length }}", "Range too big"),
    ],
)
def test_templates_run_in_a_sandbox(source: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        render(source)


def test_a_broken_template_names_its_line() -> None:
    with pytest.raises(ModelError, match="broken at line 2"):
        ChatTemplate("\n{% if %}")


def test_variables_are_the_names_that_a_template_reads() -> None:
    assert {"messages", "tools", "add_generation_prompt", "enable_thinking"} <= ChatTemplate(CHATML).variables
    assert ChatTemplate(TRIMMING).variables == {"messages", "add_generation_prompt", "pad_token", "eos_token", "date"}


@pytest.mark.parametrize(
    ("source", "iterates", "takes_text"), [(CHATML, False, True), (PARTS, True, True), (PARTS_ALONE, True, False)]
)
def test_a_template_shows_what_content_it_reads(source: str, iterates: bool, takes_text: bool) -> None:
    template = ChatTemplate(source)
    assert (template.iterates_content, template.takes_text_content) == (iterates, takes_text)
