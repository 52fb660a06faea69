"""Which form of calls a chat template teaches."""

from __future__ import annotations

import pytest
from tests.tokenizer.templates import CHATML

from firsttoken.server.tools.call_form import HERMES, LLAMA3_JSON, CallForm, form_of


@pytest.mark.parametrize(
    ("template", "form"),
    [
        (CHATML, HERMES),
        (r"""{{- "Write <tool_call>\n{\"name\": <name>, \"arguments\": <object>}\n</tool_call>" }}""", HERMES),
        ("""{{- 'Answer with {"name": its name, "parameters": an object}.' }}""", LLAMA3_JSON),
        ("""{{- '{"name": "' + call.name + '", ' }}{{- '"parameters": ' }}""", LLAMA3_JSON),
        ("{{- '<tool_call>\\n<function=' + call.name + '>\\n<parameter=' + name + '>' }}", None),
        ("{{- '[TOOL_CALLS]' + (calls | tojson) }}", None),
        ("{% for message in messages %}{{ message.content }}{% endfor %}", None),
    ],
)
def test_a_form_is_told_from_what_the_template_writes(template: str, form: CallForm | None) -> None:
    assert form_of(template) is form
