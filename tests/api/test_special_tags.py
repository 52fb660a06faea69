"""Tags that a tokeniser counts as special, so that an answer's text would not show them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.api.live_server import LiveServer, live_server
from tests.builders import tiny_tokenizer, write_tokenizer
from tests.tokenizer.templates import CHATML
from tokenizers import AddedToken

from firsttoken.tokenizer import Tokenizer

TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
ADD = {"type": "function", "function": {"name": "add"}}
CALL = '{"name": "add", "arguments": {"a": 1}}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    backend = tiny_tokenizer()
    backend.add_special_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    folder = write_tokenizer(tmp_path_factory.mktemp("special"), backend, chat_template=CHATML)
    with live_server(Tokenizer.load(folder), max_model_len=2048) as running:
        yield running


def writes(server: LiveServer, *pieces: str) -> None:
    """Tags as their tokens, the rest a token a byte."""
    ids = [
        token_id
        for piece in pieces
        for token_id in ([server.vocabulary.special(piece)] if piece in TAGS else server.vocabulary.of(piece))
    ]
    server.backend.script = lambda _request, _index: ids


def test_they_are_read_all_the_same(server: LiveServer) -> None:
    writes(server, "<think>", "\nHm.\n", "</think>", "\n\nSo:\n", "<tool_call>", f"\n{CALL}\n", "</tool_call>")
    choice = server.chat(tools=[ADD]).json()["choices"][0]
    assert choice["message"]["reasoning_content"] == "Hm."
    assert choice["message"]["content"] == "So:"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert choice["finish_reason"] == "tool_calls"
    server.next_is_right()


def test_a_grammar_names_them_as_tokens(server: LiveServer) -> None:
    writes(server, "<tool_call>", f"\n{CALL}\n", "</tool_call>")
    assert server.chat(tools=[ADD], tool_choice="required").json()["choices"][0]["finish_reason"] == "tool_calls"
    grammar = server.backend.submitted[-1].sampling.grammar
    assert grammar is not None
    assert 'call: <tool_call> "\\n" body "\\n" </tool_call>' in grammar.source
    server.next_is_right()
