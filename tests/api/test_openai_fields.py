"""Every field that openai-python can send is known here: honoured, neutral, or refused by its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.types import completion_create_params
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionDeveloperMessageParam,
    ChatCompletionStreamOptionsParam,
    ChatCompletionSystemMessageParam,
    ChatCompletionToolMessageParam,
    ChatCompletionUserMessageParam,
)
from openai.types.chat import completion_create_params as chat_params
from tests.api.live_server import LiveServer, live_server
from tests.builders import write_tokenizer

from firsttoken.tokenizer import Tokenizer

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture(scope="module")
def strict(tokenizer: Tokenizer) -> Iterator[LiveServer]:
    """It refuses what it does not know."""
    with live_server(tokenizer, strict_fields=True) as running:
        yield running


def names(*kinds: type) -> list[str]:
    return sorted({name for kind in kinds for name in kind.__annotations__})


CHAT_FIELDS = names(chat_params.CompletionCreateParamsBase, chat_params.CompletionCreateParamsStreaming)
TEXT_FIELDS = names(
    completion_create_params.CompletionCreateParamsBase, completion_create_params.CompletionCreateParamsStreaming
)


def test_no_field_of_a_chat_is_unknown(strict: LiveServer) -> None:
    assert len(CHAT_FIELDS) > 30
    for name in set(CHAT_FIELDS) - {"messages"}:
        answer = strict.post("/v1/chat/completions", **CHAT, **{name: None})
        assert answer.status_code == 200, (name, answer.text)


def test_no_field_of_a_text_completion_is_unknown(strict: LiveServer) -> None:
    assert len(TEXT_FIELDS) > 15
    for name in set(TEXT_FIELDS) - {"prompt"}:
        answer = strict.post("/v1/completions", prompt="Hi", **{name: None})
        assert answer.status_code == 200, (name, answer.text)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ChatCompletionSystemMessageParam, {"role": "system", "content": "Hi"}),
        (ChatCompletionDeveloperMessageParam, {"role": "developer", "content": "Hi"}),
        (ChatCompletionUserMessageParam, {"role": "user", "content": "Hi"}),
        (ChatCompletionAssistantMessageParam, {"role": "assistant", "content": "Hi"}),
        (ChatCompletionToolMessageParam, {"role": "tool", "content": "4", "tool_call_id": "a"}),
    ],
)
def test_no_field_of_a_message_is_unknown(strict: LiveServer, kind: type, message: dict[str, Any]) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    before = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    for name in names(kind):
        messages = [*before, {name: None} | message]
        answer = strict.post("/v1/chat/completions", messages=messages)
        assert answer.status_code == 200, (name, answer.text)


def test_no_stream_option_is_unknown(strict: LiveServer) -> None:
    for name in names(ChatCompletionStreamOptionsParam):
        answer = strict.post("/v1/chat/completions", **CHAT, stream=True, stream_options={name: None})
        assert answer.status_code == 200, (name, answer.text)


def test_a_named_user_is_told_to_a_template_that_reads_names(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}: {{ m.content }}\n{% endfor %}"
    )
    with live_server(Tokenizer.load(write_tokenizer(tmp_path, chat_template=template))) as server:
        messages = [{"role": "user", "name": "Ada", "content": "Hi"}, {"role": "user", "content": "Ho"}]
        assert server.post("/v1/chat/completions", messages=messages).status_code == 200
        ids = server.backend.submitted[0].prompt_token_ids
        assert server.vocabulary.tokenizer.decode(ids) == "user Ada: Hi\nuser: Ho\n"
