"""Log-probabilities in both of OpenAI's forms."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.live_server import HELLO, LiveServer

TEXT = "你好，“世界”🙂 ok"


def joined(entries: list[dict[str, Any]]) -> str:
    return b"".join(bytes(entry["bytes"]) for entry in entries).decode()


@pytest.mark.parametrize("stream", [False, True])
def test_the_bytes_of_chat_logprobs_join_to_the_exact_text(server: LiveServer, stream: bool) -> None:
    server.says(TEXT)
    entries: list[dict[str, Any]] = []
    if stream:
        for chunk in server.chat_stream(logprobs=True, top_logprobs=5):
            logprobs = chunk["choices"][0]["logprobs"]
            entries += logprobs["content"] if logprobs else []
    else:
        choice = server.chat(logprobs=True, top_logprobs=5).json()["choices"][0]
        assert choice["logprobs"]["refusal"] is None
        entries = choice["logprobs"]["content"]
    assert joined(entries) == TEXT
    assert len(entries) == len(TEXT.encode())  # one token a byte here
    for entry in entries:
        assert len(entry["top_logprobs"]) == 5
        assert all(top["token"] and top["bytes"] for top in entry["top_logprobs"])
        assert entry["top_logprobs"][0]["token"] == entry["token"]
    assert entries[0]["token"] == "\\xe4"
    server.next_is_right()


def test_logprobs_without_alternatives(server: LiveServer) -> None:
    entries = server.chat(logprobs=True).json()["choices"][0]["logprobs"]["content"]
    assert joined(entries) == HELLO
    assert all(entry["top_logprobs"] == [] and entry["logprob"] == -0.5 for entry in entries)
    assert server.chat().json()["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("stop", ["there", "e.", "好"])
def test_no_token_of_a_stop_string_is_among_the_logprobs(server: LiveServer, stop: str) -> None:
    server.says("Hello there好.")
    whole = server.chat(logprobs=True, stop=stop).json()["choices"][0]
    assert joined(whole["logprobs"]["content"]) == whole["message"]["content"]
    entries: list[dict[str, Any]] = []
    text = ""
    for chunk in server.chat_stream(logprobs=True, stop=stop):
        choice = chunk["choices"][0]
        entries += choice["logprobs"]["content"] if choice["logprobs"] else []
        text += choice["delta"].get("content", "")
        assert text.startswith(joined(entries)), "logprobs ran ahead of the text"
    assert joined(entries) == text
    server.next_is_right()


def test_zero_logprobs_of_a_completion_are_those_of_the_chosen_tokens(server: LiveServer) -> None:
    server.says("ab")
    logprobs = server.complete(logprobs=0).json()["choices"][0]["logprobs"]
    assert logprobs == {
        "tokens": ["a", "b"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"a": -0.5}, {"b": -0.5}],
        "text_offset": [0, 1],
    }
    assert server.complete().json()["choices"][0]["logprobs"] is None
    server.next_is_right()


def test_an_echo_alone_gives_the_prompt_with_its_logprobs(server: LiveServer) -> None:
    body = server.complete("!你", echo=True, max_tokens=0, logprobs=1).json()
    choice = body["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("!你", "length")
    logprobs = choice["logprobs"]
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert all(value == -0.5 for value in logprobs["token_logprobs"][1:])
    assert logprobs["text_offset"][0] == 0
    assert len(logprobs["tokens"]) == body["usage"]["prompt_tokens"]
    assert body["usage"]["completion_tokens"] == 0
    server.next_is_right()


def test_an_echo_without_logprobs_asks_nothing_of_the_engine(server: LiveServer) -> None:
    assert server.complete("Hi", echo=True, max_tokens=0).json()["choices"][0]["text"] == "Hi"
    (chunk, _end) = server.stream("/v1/completions", prompt="Hi", echo=True, max_tokens=0)
    assert chunk["choices"][0]["text"] == "Hi"
    assert server.backend.submitted == []
    server.next_is_right()


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_goes_before_the_answer_of_every_choice(server: LiveServer, stream: bool) -> None:
    texts, tokens = ["", ""], [0, 0]
    body = {"prompt": "Hi", "echo": True, "n": 2, "logprobs": 0}
    answers = server.stream("/v1/completions", **body) if stream else [server.post("/v1/completions", **body).json()]
    for answer in answers:
        for choice in answer["choices"]:
            texts[choice["index"]] += choice["text"]
            tokens[choice["index"]] += len(choice["logprobs"]["tokens"]) if choice["logprobs"] else 0
    assert texts == ["Hi" + HELLO] * 2
    assert tokens == [2 + len(HELLO)] * 2
    server.next_is_right()


def test_tokens_can_be_named_by_their_ids(server: LiveServer) -> None:
    server.says("a")
    (token_id,) = server.vocabulary.of("a")
    choice = server.chat(logprobs=True, return_tokens_as_token_ids=True).json()["choices"][0]
    assert choice["logprobs"]["content"][0]["token"] == f"token_id:{token_id}"
