"""Log-probabilities in both of OpenAI's forms."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.live_server import HELLO, LiveServer, live_server, refused

from firsttoken.tokenizer import Tokenizer

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


@pytest.mark.parametrize("n", [1, 2])
def test_a_prompt_is_scored_in_vllms_form_on_both_endpoints(server: LiveServer, n: int) -> None:
    prompt = server.vocabulary.of("ab你")
    body = server.complete(prompt, prompt_logprobs=2, n=n, max_tokens=1).json()
    assert len(body["choices"]) == n
    for choice in body["choices"]:
        first, *others = choice["prompt_logprobs"]
        assert first is None
        assert [next(iter(scores)) for scores in others] == [str(prompt[i]) for i in range(1, len(prompt))]
        assert others[0][str(prompt[1])] == {"logprob": -0.5, "rank": 1, "decoded_token": "b"}
        assert all(len(scores) == 2 for scores in others)
        assert others[1][str(prompt[2])]["decoded_token"] == "\\xe4"
    chat = server.chat(prompt_logprobs=0, n=n).json()
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]
    assert chat["prompt_logprobs"][0] is None
    assert all(len(scores) == 1 for scores in chat["prompt_logprobs"][1:])
    assert "prompt_logprobs" not in server.chat().json()
    server.next_is_right()


def test_a_prompts_scores_and_its_echo_have_each_as_many_alternatives_as_asked(server: LiveServer) -> None:
    prompt = server.vocabulary.of("abc")
    choice = server.complete(prompt, prompt_logprobs=3, echo=True, logprobs=1, max_tokens=0).json()["choices"][0]
    assert choice["text"] == "abc"
    assert [len(top) for top in choice["logprobs"]["top_logprobs"][1:]] == [1, 1]
    assert [len(scores) for scores in choice["prompt_logprobs"][1:]] == [3, 3]


def test_a_prompt_is_scored_though_no_token_is_wanted(server: LiveServer) -> None:
    choice = server.complete("ab", prompt_logprobs=1, max_tokens=0, return_token_ids=True).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["token_ids"]) == ("", "length", [])
    assert len(choice["prompt_logprobs"]) == 2


def test_a_stream_carries_no_prompt_logprobs_and_says_so(server: LiveServer) -> None:
    refused(server.chat(prompt_logprobs=1, stream=True), "prompt_logprobs")
    refused(server.complete(prompt_logprobs=1, stream=True), "prompt_logprobs")
    server.next_is_right()


def test_scores_that_would_fill_the_memory_are_refused(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, max_model_len=200_000) as server:
        prompt = [65] * 100_000
        for field in ({"prompt_logprobs": 20}, {"logprobs": 20, "echo": True}):
            error = refused(server.complete(prompt, **field), next(iter(field)))
            assert "at most 9" in error["message"]
        assert server.backend.submitted == []
        assert server.complete(prompt, prompt_logprobs=0, max_tokens=1).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_token_ids_come_with_both_endpoints_answers(server: LiveServer, stream: bool) -> None:
    server.says("a你b, end here")
    spoken = server.vocabulary.of("a你b, end")
    for path, body in (
        ("/v1/completions", {"prompt": ["Hi", "Ho"]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "n": 2}),
    ):
        fields = body | {"return_token_ids": True, "stop": " here"}
        answers = server.stream(path, **fields) if stream else [server.post(path, **fields).json()]
        ids: list[list[int]] = [[], []]
        prompts: dict[int, list[int]] = {}
        for each in answers:
            for choice in each["choices"]:
                ids[choice["index"]] += choice.get("token_ids") or []
                if "prompt_token_ids" in choice:
                    prompts[choice["index"]] = choice["prompt_token_ids"]
            if "prompt_token_ids" in each:
                prompts[0] = prompts[1] = each["prompt_token_ids"]
        whole = spoken + server.vocabulary.of(" here")
        assert ids == [whole, whole], path
        asked = [request.prompt_token_ids for request in server.backend.submitted[-2:]]
        assert list(prompts.values()) == (asked if "prompt" in body else [asked[-1]] * 2)
    assert "token_ids" not in server.chat().json()["choices"][0]
    server.next_is_right()


def test_the_id_that_ends_an_answer_is_among_its_ids_and_not_in_its_text(server: LiveServer) -> None:
    server.says("ab")
    choice = server.complete(return_token_ids=True).json()["choices"][0]
    assert choice["text"] == "ab"
    assert choice["token_ids"] == [*server.vocabulary.of("ab"), server.vocabulary.end]
    chunks = server.stream("/v1/completions", prompt="Hi", return_token_ids=True)
    streamed = [id_ for chunk in chunks for id_ in chunk["choices"][0].get("token_ids", [])]
    assert streamed == choice["token_ids"]


def test_tokens_can_be_named_by_their_ids(server: LiveServer) -> None:
    server.says("a")
    (token_id,) = server.vocabulary.of("a")
    choice = server.chat(logprobs=True, return_tokens_as_token_ids=True).json()["choices"][0]
    assert choice["logprobs"]["content"][0]["token"] == f"token_id:{token_id}"
