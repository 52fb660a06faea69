"""Several prompts and several answers in one request."""

from __future__ import annotations

from collections import defaultdict

from tests.api.live_server import LiveServer, wait_until


def test_two_prompts_with_two_answers_each_are_numbered_by_prompt(server: LiveServer) -> None:
    server.backend.script = lambda request, index: server.vocabulary.of(f"{len(request.prompt_token_ids)}-{index}")
    body = server.complete(["!", "!!!"], n=2).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in body["choices"]] == ["1-0", "1-1", "3-0", "3-1"]
    assert body["usage"]["prompt_tokens"] == 4
    assert body["usage"]["completion_tokens"] == 16
    server.next_is_right()


def test_prompts_of_ids_and_streams_are_numbered_alike(server: LiveServer) -> None:
    server.backend.script = lambda request, index: server.vocabulary.of(f"{request.prompt_token_ids[0]}-{index}")
    texts: dict[int, str] = defaultdict(str)
    ends: dict[int, str] = {}
    for chunk in server.stream("/v1/completions", prompt=[[5], [6, 7]], n=2):
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["text"]
        if choice["finish_reason"]:
            ends[choice["index"]] = choice["finish_reason"]
    assert texts == {0: "5-0", 1: "5-1", 2: "6-0", 3: "6-1"}
    assert ends == dict.fromkeys(range(4), "stop")
    server.next_is_right()


def test_four_streamed_answers_have_their_own_role_text_and_end(server: LiveServer) -> None:
    server.backend.script = lambda _request, index: server.vocabulary.of("abcd"[: index + 1])
    chunks = server.chat_stream(n=4, seed=7, stream_options={"include_usage": True})
    roles = [c["choices"][0]["index"] for c in chunks if c["choices"] and "role" in c["choices"][0]["delta"]]
    assert roles == [0, 1, 2, 3]
    texts: dict[int, str] = defaultdict(str)
    ended: list[int] = []
    for chunk in chunks[4:-1]:
        (choice,) = chunk["choices"]
        assert choice["index"] not in ended, "text after the end"
        texts[choice["index"]] += choice["delta"].get("content", "")
        if choice["finish_reason"]:
            ended.append(choice["index"])
    assert texts == {0: "a", 1: "ab", 2: "abc", 3: "abcd"}
    assert sorted(ended) == [0, 1, 2, 3]
    assert chunks[-1]["usage"]["completion_tokens"] == 2 + 3 + 4 + 5
    assert server.backend.submitted[-1].n == 4
    assert server.backend.submitted[-1].sampling.seed == 7
    server.next_is_right()


def test_one_refused_prompt_leaves_none_of_its_siblings_running(server: LiveServer) -> None:
    server.backend.pace = 0.01
    server.backend.capacity = 2
    response = server.complete(["a", "b", "c"])
    assert response.status_code == 429
    wait_until(lambda: not server.backend.running)
    assert len(server.backend.aborted) >= 2
    server.next_is_right()
