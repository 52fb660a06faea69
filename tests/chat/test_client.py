"""The chat client against a fake server behind httpx's own transport interface."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from firsttoken.chat.client import Answer, ChatClient, ChatError, Options

Handler = Callable[[httpx.Request], httpx.Response]
HELLO = [{"role": "user", "content": "hello"}]


def client_of(handler: Handler, **options: Any) -> ChatClient:
    return ChatClient("http://server:8000", http=httpx.Client(transport=httpx.MockTransport(handler)), **options)


def delta(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], "usage": None}


def usage(prompt: int, completion: int, cached: int | None) -> dict[str, Any]:
    details = None if cached is None else {"cached_tokens": cached}
    return {
        "choices": [],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details},
    }


def stream_of(*events: dict[str, Any], done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join([": a comment\n\n", *lines, "data: [DONE]\n\n" if done else ""]).encode()


def ask(client: ChatClient, options: Options | None = None) -> Answer:
    answer = Answer()
    for _ in client.stream("m", HELLO, options or Options(), answer):
        pass
    return answer


def test_an_answer_collects_text_usage_and_times() -> None:
    body = stream_of(delta("Hel"), delta("lo 你好"), delta("", "stop"), usage(9, 4, 3))
    answer = ask(client_of(lambda request: httpx.Response(200, content=body)))
    assert answer.text == "Hello 你好"
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (9, 4, 3)
    assert answer.finish_reason == "stop"
    assert answer.ttft is not None
    assert answer.e2e is not None
    assert 0 < answer.ttft <= answer.e2e


def test_usage_without_cache_details_leaves_cached_tokens_unknown() -> None:
    body = stream_of(delta("a"), usage(9, 1, None))
    assert ask(client_of(lambda request: httpx.Response(200, content=body))).cached_tokens is None


def test_decode_speed_counts_the_tokens_after_the_first() -> None:
    assert Answer(ttft=1.0, e2e=3.0, completion_tokens=11).tokens_per_second == pytest.approx(5.0)
    assert Answer(ttft=1.0, e2e=3.0, completion_tokens=1).tokens_per_second is None


def test_only_options_that_were_given_are_sent() -> None:
    seen: list[dict[str, Any]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return httpx.Response(200, content=stream_of())

    ask(client_of(handler))
    ask(client_of(handler), Options(temperature=0.0, max_tokens=5))
    assert "temperature" not in seen[0]
    assert "max_completion_tokens" not in seen[0]
    assert (seen[1]["temperature"], seen[1]["max_completion_tokens"]) == (0.0, 5)
    assert seen[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    "url", ["http://server:8000", "http://server:8000/", "http://server:8000/v1", "http://server:8000/v1/"]
)
def test_a_url_is_taken_with_or_without_v1(url: str) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/models"
        return httpx.Response(200, json={"data": [{"id": "demo"}]})

    client = ChatClient(url, http=httpx.Client(transport=httpx.MockTransport(handler)))
    assert client.model() == "demo"


def test_the_key_goes_as_a_bearer_token() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer secret"
        return httpx.Response(200, json={"data": [{"id": "demo"}]})

    assert client_of(handler, api_key="secret").model() == "demo"


def test_a_refusal_is_the_servers_own_sentence() -> None:
    error = {
        "error": {"message": "This model's maximum context length is 512 tokens.", "type": "invalid_request_error"}
    }
    with pytest.raises(ChatError, match="maximum context length is 512"):
        ask(client_of(lambda request: httpx.Response(400, json=error)))


def test_a_refused_key_tells_how_to_give_one() -> None:
    with pytest.raises(ChatError, match="OPENAI_API_KEY"):
        client_of(lambda request: httpx.Response(401, json={"error": {"message": "Wrong key."}})).model()


@pytest.mark.parametrize("answer", [b"<html>", b"{}", b'{"data": []}', b"[1]"])
def test_something_else_on_the_port_is_told_in_one_sentence(answer: bytes) -> None:
    with pytest.raises(ChatError, match="does not answer like an OpenAI-compatible server"):
        client_of(lambda request: httpx.Response(200, content=answer)).model()


def test_no_server_is_told_in_one_sentence() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(ChatError, match="firsttoken serve"):
        client_of(handler).model()
    with pytest.raises(ChatError, match="firsttoken serve"):
        ask(client_of(handler))


def test_an_error_event_in_the_stream_keeps_the_text_before_it() -> None:
    body = stream_of(delta("half"), {"error": {"message": "The engine died."}})
    answer = Answer()
    with pytest.raises(ChatError, match="The engine died"):
        list(client_of(lambda request: httpx.Response(200, content=body)).stream("m", HELLO, Options(), answer))
    assert answer.text == "half"


def test_a_stream_that_ends_without_done_is_an_error() -> None:
    body = stream_of(delta("half"), done=False)
    with pytest.raises(ChatError, match="before the answer was done"):
        ask(client_of(lambda request: httpx.Response(200, content=body)))


class OpenStream(httpx.SyncByteStream):
    """A stream that never ends and notes when it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield f"data: {json.dumps(delta('x'))}\n\n".encode()

    def close(self) -> None:
        self.closed = True


def test_leaving_the_loop_closes_the_connection() -> None:
    body = OpenStream()
    stream = client_of(lambda request: httpx.Response(200, stream=body)).stream("m", HELLO, Options(), Answer())
    assert next(stream) == "x"
    stream.close()
    assert body.closed
