"""Bodies, headers and keys, before anything of a request is looked at."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, cast

import httpx
import pytest
from tests.api.live_server import LiveServer, live_server, refused, wait_until

from firsttoken.tokenizer import Tokenizer

LIMIT = 64 * 1024


@pytest.fixture(scope="module")
def small(tokenizer: Tokenizer) -> Iterator[LiveServer]:
    with live_server(tokenizer, max_body_bytes=LIMIT) as running:
        yield running


def test_a_body_of_50_megabytes_is_refused_and_its_sender_still_gets_the_answer(server: LiveServer) -> None:
    content = b'{"prompt": "' + b"a" * 50_000_000 + b'"}'
    error = refused(server.client.post("/v1/completions", content=content), None, 413)
    assert error["code"] == "request_too_large"
    server.next_is_right()


def test_a_declared_length_is_refused_within_a_second_before_the_body_is_sent(small: LiveServer) -> None:
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", small.port), timeout=5) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50000000\r\n\r\n{")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")
    assert time.monotonic() - start < 1.0
    small.next_is_right()


def test_a_chunked_body_is_refused_once_it_is_too_long(small: LiveServer) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(64):
            sent += 4096
            yield b"a" * 4096

    refused(small.client.post("/v1/completions", content=chunks()), None, 413)
    small.next_is_right()


def test_a_body_just_within_the_limit_is_read(small: LiveServer) -> None:
    content = b'{"prompt": "Hi"}'
    content += b" " * (LIMIT - len(content))
    assert small.client.post("/v1/completions", content=content).status_code == 200
    refused(small.client.post("/v1/completions", content=content + b" "), None, 413)


def test_headers_that_are_too_long_are_refused(server: LiveServer) -> None:
    refused(server.client.get("/v1/models", headers={"x-long": "a" * 40_000}), None, 431)
    server.next_is_right()


def test_more_headers_than_the_server_takes_are_refused(server: LiveServer) -> None:
    many = {f"x-{i}": "1" for i in range(200)}
    error = refused(server.client.get("/v1/models", headers=many), None, 431)
    assert error["code"] == "headers_too_large"
    assert server.client.get("/v1/models", headers={f"x-{i}": "1" for i in range(50)}).status_code == 200
    server.next_is_right()


def test_bodies_that_would_fill_the_memory_together_are_put_off(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, max_body_memory=100_000) as server:
        server.backend.pace = 0.05
        large = b'{"prompt": "Hi"}' + b" " * 60_000
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(server.client.post, "/v1/completions", content=large)
            wait_until(lambda: bool(server.backend.running))
            second = server.client.post("/v1/completions", content=large)
            assert refused(second, None, 503)["code"] == "service_unavailable"
            assert second.headers["retry-after"] == "1"
            assert server.complete(max_tokens=1).status_code == 200, "a small one still fits"
            assert first.result().status_code == 200
        server.backend.pace = 0
        assert server.client.post("/v1/completions", content=large).status_code == 200
        server.next_is_right()


def nested(levels: int) -> bytes:
    """A body of so many levels, the object itself included."""
    inner = levels - 1
    return (
        b'{"prompt": "Hi", "user": '
        + b"[" * (inner - inner // 2)
        + b'{"a":' * (inner // 2)
        + b"1"
        + b"}" * (inner // 2)
        + b"]" * (inner - inner // 2)
        + b"}"
    )


@pytest.mark.parametrize("padding", [0, 100_000])
def test_a_body_of_too_many_levels_is_refused(tokenizer: Tokenizer, padding: int) -> None:
    with live_server(tokenizer, max_json_depth=20) as strict:
        for levels, status in ((20, 200), (21, 400), (100, 400), (199, 400), (10_000, 400)):
            answer = strict.client.post("/v1/completions", content=nested(levels) + b" " * padding)
            assert answer.status_code == status, levels
            assert "20 levels" in answer.text or levels in (20, 10_000)
        strict.next_is_right()


def test_a_text_longer_than_the_limit_is_refused_wherever_it_is(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, max_string_length=100) as strict:
        assert strict.complete("a" * 100).status_code == 200
        for body in ({"prompt": "a" * 101}, {"prompt": "Hi", "metadata": {"x": ["a" * 101]}}):
            error = refused(strict.post("/v1/completions", **body), None)
            assert error["code"] == "text_too_long"
        strict.next_is_right()


def test_a_request_id_is_echoed_or_made(server: LiveServer) -> None:
    assert server.client.get("/health", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    made = server.client.get("/nowhere").headers["x-request-id"]
    assert len(made) == 32
    for _ in range(2):
        answer = server.client.post("/v1/completions", json={"prompt": "Hi"}, headers={"x-request-id": "abc-1"})
        assert answer.headers["x-request-id"] == "abc-1"
    inside = [request.request_id for request in server.backend.submitted]
    assert len(set(inside)) == 2
    assert not any("abc-1" in each for each in inside), "two clients may choose the same"
    strange = server.client.get("/health", headers={"x-request-id": "a b"}).headers["x-request-id"]
    assert strange != "a b"


def test_a_name_of_a_model_is_not_said_back_without_end(server: LiveServer) -> None:
    error = refused(server.client.get("/v1/models/" + "a" * 20_000), "model", 404)
    assert len(error["message"]) < 1000


class PatientTokenizer:
    """Gives its texts back only once it is allowed to."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.asked, self.allowed = Event(), Event()
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        self.asked.set()
        assert self.allowed.wait(5)
        return self._tokenizer.decode(ids, **options)

    def token_text(self, token_id: int) -> str:
        self.asked.set()
        assert self.allowed.wait(5)
        return self._tokenizer.token_text(token_id)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/detokenize", {"tokens": [10, 11]}), ("/tokenize", {"prompt": "Hi", "return_token_strs": True})],
)
def test_others_are_answered_while_many_tokens_are_spelt_out(
    tokenizer: Tokenizer, path: str, body: dict[str, Any]
) -> None:
    patient = PatientTokenizer(tokenizer)
    with live_server(cast("Tokenizer", patient)) as server, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(httpx.post, server.url + path, json=body, timeout=10)
        assert patient.asked.wait(5)
        assert server.client.get("/health", timeout=3).status_code == 200
        patient.allowed.set()
        assert asking.result().status_code == 200


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("prompt", {"prompt": "a" * 5_000_000}),
        ("messages", {"messages": [{"role": "user", "content": "a b" * 1_000_000}]}),
    ],
)
def test_tokens_beyond_all_contexts_are_not_counted(server: LiveServer, field: str, body: dict[str, Any]) -> None:
    """Five million took the tokeniser 1.5 GB, and several requests may come at once."""
    error = refused(server.post("/tokenize", **body), field)
    assert (
        error["message"] == f"Invalid '{field}': more than 262144 tokens are not counted at once; send them in parts."
    )
    assert server.post("/tokenize", prompt="a b" * 1000).json()["count"] > 256, "more than the context is fine"
