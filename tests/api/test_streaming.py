"""The exact form of streamed answers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.api.live_server import HELLO, LiveServer, refused, wait_until


def test_a_prompt_that_ends_inside_a_character_leaves_the_stream_valid_and_free_of_the_prompts_bytes(
    server: LiveServer,
) -> None:
    vocabulary = server.vocabulary
    whole = "好".encode()
    server.backend.script = lambda _request, _index: vocabulary.bytes(whole[2:]) + vocabulary.of("了")
    prompt = vocabulary.of("你") + vocabulary.bytes(whole[:2])
    chunks = server.stream("/v1/completions", prompt=prompt)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "\ufffd了"
    server.next_is_right()


def test_characters_are_sent_whole(server: LiveServer) -> None:
    text = "héllo 你好 🙂👩‍👩‍👧 end"
    server.says(text)
    pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in server.chat_stream()]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    server.next_is_right()


def test_a_character_cut_by_max_tokens_ends_as_a_replacement_character(server: LiveServer) -> None:
    server.says("ab你")
    body = server.chat(max_tokens=4).json()
    assert body["choices"][0]["message"]["content"] == "ab\ufffd"
    server.next_is_right()


def test_the_text_of_the_last_token_is_not_lost_at_max_tokens(server: LiveServer) -> None:
    server.says("0123456789abcdef")
    chunks = server.chat_stream(max_tokens=10)
    contents = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
    assert "".join(content or "" for content in contents) == "0123456789"
    assert chunks[-1]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])
    server.next_is_right()


def test_chat_chunks_have_openais_form(server: LiveServer) -> None:
    first, *middle, last = server.chat_stream(model="tiny")
    assert first["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert set(first) == {"id", "object", "created", "model", "system_fingerprint", "choices"}
    assert first["object"] == "chat.completion.chunk"
    assert first["id"].startswith("chatcmpl-")
    assert first["model"] == "tiny"
    assert {chunk["id"] for chunk in middle} == {first["id"]} == {last["id"]}
    assert all(set(chunk["choices"][0]["delta"]) == {"content"} for chunk in middle)
    assert last["choices"][0]["finish_reason"] == "stop"
    server.next_is_right()


def test_completion_chunks_have_openais_form(server: LiveServer) -> None:
    *texts, last = server.stream("/v1/completions", prompt="Hi")
    assert "".join(chunk["choices"][0]["text"] for chunk in texts) == HELLO
    assert all(chunk["object"] == "text_completion" and chunk["id"].startswith("cmpl-") for chunk in texts)
    assert last["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}]
    server.next_is_right()


def test_usage_comes_last_and_alone_where_it_was_asked_for(server: LiveServer) -> None:
    server.backend.cached_tokens = 3
    *chunks, last = server.chat_stream(stream_options={"include_usage": True})
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)
    assert last["choices"] == []
    usage = last["usage"]
    assert usage["completion_tokens"] == len(HELLO) + 1
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 3}
    server.next_is_right()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_every_chunk_carries_the_usage_so_far_where_it_was_asked_for(server: LiveServer, path: str) -> None:
    server.says("abc")
    server.backend.pace = 0.02
    body: dict[str, Any] = (
        {"prompt": "Hi"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "Hi"}]}
    )
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = server.stream(path, stream_options=options, n=2, **body)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 8, "three tokens and the end of two answers"
    assert len(set(counts)) > 2, "it grows with the answer"
    assert all(chunk["usage"]["prompt_tokens"] == chunks[-1]["usage"]["prompt_tokens"] for chunk in chunks)
    silent = server.stream(path, stream_options={"continuous_usage_stats": True}, **body)
    assert all("usage" not in chunk for chunk in silent)
    server.backend.pace = 0
    server.next_is_right()


def test_no_chunk_mentions_usage_unless_asked(server: LiveServer) -> None:
    for options in (None, {"include_usage": False}, {}):
        assert all("usage" not in chunk for chunk in server.chat_stream(stream_options=options))


def test_usage_chunks_without_a_stream_are_refused(server: LiveServer) -> None:
    error = refused(server.chat(stream_options={"include_usage": True}), "stream_options")
    assert error["message"] == "Invalid 'stream_options': it needs `stream` to be true."
    assert server.chat(stream_options={"include_usage": False}).status_code == 200


def test_every_event_is_one_line_by_any_reading(server: LiveServer) -> None:
    text = 'a\nb\rc\u2028d\u2029e\x85f"\\\x0b\x0c'
    server.says(text)
    response = server.chat(stream=True)
    lines = response.text.splitlines()
    assert all(not line or line.startswith("data: ") for line in lines)
    pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in server.chat_stream()]
    assert "".join(pieces) == text
    server.next_is_right()


def test_headers_tell_proxies_not_to_hold_a_stream_back(server: LiveServer) -> None:
    response = server.chat(stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert "content-length" not in response.headers


def test_tokens_leave_as_they_come_and_not_at_the_end(server: LiveServer) -> None:
    server.backend.pace = 0.02
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
    with (
        httpx.Client(base_url=server.url) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as response,
    ):
        lines = (line for line in response.iter_lines() if '"content":"H"' in line)
        next(lines)
        assert server.backend.running, "the first token came only after the last"
    wait_until(lambda: not server.backend.running)
    server.next_is_right()


def test_an_engine_error_in_mid_stream_is_an_event_and_the_end(server: LiveServer) -> None:
    server.backend.fails_after = 3
    response = server.chat(stream=True)
    events = [event for event in response.text.split("\n\n") if event]
    assert '"content":"l"' in events[-2]
    assert events[-1] == (
        'data: {"error":{"message":"The step failed.","type":"server_error","param":null,"code":"engine_error"}}'
    )
    server.backend.fails_after = None
    server.next_is_right()


def test_an_engine_error_without_a_stream_is_a_500(server: LiveServer) -> None:
    server.backend.fails_after = 3
    response = server.chat()
    assert response.status_code == 500
    assert response.json()["error"]["message"] == "The step failed."
    server.backend.fails_after = None
    server.next_is_right()
