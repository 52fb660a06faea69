"""How long a prompt and its answer may be."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.api.live_server import LiveServer, live_server, refused

from firsttoken.config import Truncation
from firsttoken.tokenizer import Tokenizer

CONTEXT = 256  # tokens, of the shared server


def ids(count: int) -> list[int]:
    return [i % 200 for i in range(count)]


def test_a_prompt_that_leaves_no_room_is_refused_in_openais_words(server: LiveServer) -> None:
    error = refused(server.complete(ids(CONTEXT), max_tokens=1), "prompt")
    assert error["code"] == "context_length_exceeded"
    assert error["message"].startswith("This model's maximum context length is 256 tokens, however you requested 257")
    assert server.complete(ids(CONTEXT - 1), max_tokens=1).json()["usage"]["total_tokens"] == CONTEXT
    server.next_is_right()


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 0, "echo": True}])
def test_the_refusal_of_a_prompt_as_long_as_the_context_does_not_contradict_itself(
    server: LiveServer, fields: dict[str, Any]
) -> None:
    error = refused(server.complete(ids(CONTEXT), **fields), "prompt")
    assert "you requested 257 tokens (256 in your prompt; 1 for the completion)" in error["message"]


def test_messages_one_token_too_long_are_refused_in_openais_words(server: LiveServer) -> None:
    frame = server.post("/tokenize", messages=[{"role": "user", "content": ""}]).json()["count"]
    fits = "!" * (CONTEXT - 1 - frame)
    assert server.chat(fits, max_tokens=1).status_code == 200
    error = refused(server.chat(fits + "!"), "messages")
    assert error["code"] == "context_length_exceeded"
    assert error["message"] == (
        "This model's maximum context length is 256 tokens. However, your messages resulted in 256 tokens. "
        "Please reduce the length of the messages."
    )
    server.next_is_right()


def test_a_prompt_and_an_answer_that_do_not_fit_together_are_refused(server: LiveServer) -> None:
    error = refused(server.chat(max_tokens=250), "messages")
    count = server.post("/tokenize", messages=[{"role": "user", "content": "Hi"}]).json()["count"]
    assert f"you requested {count + 250} tokens ({count} in the messages, 250 in the completion)" in error["message"]
    server.next_is_right()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_huge_word_is_refused_within_a_second(server: LiveServer, path: str) -> None:
    word = "a" * 200_000
    body: dict[str, Any] = {"messages": [{"role": "user", "content": word}], "prompt": word}
    start = time.monotonic()
    response = server.client.post(path, json=body)
    assert time.monotonic() - start < 1.0
    assert refused(response, "messages" if "chat" in path else "prompt")["code"] == "context_length_exceeded"
    server.next_is_right()


def test_a_body_full_of_ids_is_refused_by_their_number(server: LiveServer) -> None:
    error = refused(server.complete([1] * 1_000_000), "prompt")
    assert error["code"] == "context_length_exceeded"
    server.next_is_right()


def test_max_completion_tokens_wins_over_max_tokens(server: LiveServer) -> None:
    server.says("x" * 300)
    assert server.chat(max_completion_tokens=5, max_tokens=9).json()["usage"]["completion_tokens"] == 5
    assert server.chat(max_tokens=9).json()["usage"]["completion_tokens"] == 9
    server.next_is_right()


def test_without_either_a_chat_goes_on_to_the_contexts_end(server: LiveServer) -> None:
    server.says("x" * 300)
    body = server.chat().json()
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["total_tokens"] == CONTEXT
    server.next_is_right()


def test_a_completion_has_openais_default_length_unless_the_context_ends_before(server: LiveServer) -> None:
    server.says("x" * 300)
    assert server.complete(ids(10)).json()["usage"]["completion_tokens"] == 16
    assert server.complete(ids(CONTEXT - 3)).json()["usage"]["completion_tokens"] == 3
    assert server.complete(ids(10), min_tokens=20).json()["usage"]["completion_tokens"] == 20
    server.next_is_right()


def test_truncate_prompt_tokens_keeps_the_last_ones(server: LiveServer) -> None:
    response = server.complete(ids(100), truncate_prompt_tokens=7)
    assert server.backend.submitted[-1].prompt_token_ids == ids(100)[-7:]
    assert response.headers["x-firsttoken-truncated-tokens"] == "93"
    response = server.complete(ids(1000), truncate_prompt_tokens=-1, max_tokens=56)
    assert server.backend.submitted[-1].prompt_token_ids == ids(1000)[-200:]
    refused(server.complete(ids(1000), truncate_prompt_tokens=300), "prompt")
    assert "x-firsttoken-truncated-tokens" not in server.complete(ids(5), truncate_prompt_tokens=7).headers
    server.next_is_right()


@pytest.mark.parametrize("side", ["left", "right", "middle"])
def test_the_servers_policy_cuts_ids_and_never_text(tokenizer: Tokenizer, side: Truncation) -> None:
    prompt = ids(1000)
    with live_server(tokenizer, truncate=side) as server:
        response = server.complete(prompt, max_tokens=56)
        kept = {"left": prompt[-200:], "right": prompt[:200], "middle": prompt[:100] + prompt[-100:]}
        assert server.backend.submitted[-1].prompt_token_ids == kept[side]
        assert response.headers["x-firsttoken-truncated-tokens"] == "800"
        refused(server.complete(prompt, max_tokens=256), "prompt")
        server.complete(prompt[:200], max_tokens=56)
        assert server.backend.submitted[-1].prompt_token_ids == prompt[:200]
        server.next_is_right()


def test_the_middle_goes_and_the_system_turn_and_last_question_stay_whole(tokenizer: Tokenizer) -> None:
    system, question = "Answer in one word, please.", "And what is the last question of all?"
    history = [
        {"role": role, "content": f"{role} {i} " + "word " * 20} for i in range(9) for role in ("user", "assistant")
    ]
    messages = [{"role": "system", "content": system}, *history, {"role": "user", "content": question}]
    with live_server(tokenizer, truncate="middle") as server:
        response = server.post("/v1/chat/completions", messages=messages, max_tokens=56)
        assert response.status_code == 200, response.text
        kept = server.backend.submitted[-1].prompt_token_ids
        text = tokenizer.decode(kept, skip_special_tokens=False)
        assert len(kept) == 200
        assert text.startswith(f"<|im_start|>system\n{system}<|im_end|>\n")
        assert text.endswith(f"<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
        assert int(response.headers["x-firsttoken-truncated-tokens"]) > 0
        too_long = [{"role": "system", "content": "s" * 250}, {"role": "user", "content": question}]
        refused(server.post("/v1/chat/completions", messages=too_long, max_tokens=56), "messages")
        server.next_is_right()
