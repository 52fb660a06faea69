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
from tests.api.live_server import LiveServer, live_server, refused

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


@pytest.fixture(scope="module")
def locked(tokenizer: Tokenizer) -> Iterator[LiveServer]:
    with live_server(tokenizer, api_keys=("Secret-Key-1", "other")) as running:
        running.client.headers["authorization"] = "Bearer Secret-Key-1"
        yield running


@pytest.mark.parametrize(
    "value",
    [
        "Bearer wrong",
        "Bearer secret-key-1",
        "Bearer Secret-Key-1x",
        "Bearer Secret-Key-",
        "Bearer",
        "Secret-Key-1",
        "Basic Secret-Key-1",
        "",
    ],
)
def test_a_wrong_key_is_a_401_in_openais_form(locked: LiveServer, value: str) -> None:
    for method, path in (("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("GET", "/openapi.json")):
        response = locked.client.request(method, path, headers={"authorization": value})
        error = refused(response, None, 401)
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
        assert response.headers["www-authenticate"] == "Bearer"
    locked.next_is_right()


def test_no_key_at_all_is_a_401(locked: LiveServer) -> None:
    with socket.create_connection(("127.0.0.1", locked.port), timeout=5) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"You didn't provide an API key" in answer
    locked.next_is_right()


@pytest.mark.parametrize("host", [b"a/?x=", b"a/health?x=", b"/health", b"a/health#"])
@pytest.mark.parametrize("path", [b"/v1/models", b"//v1/models", b"/health/../v1/models", b"http://h/health/v1/models"])
def test_no_host_header_or_odd_path_gets_around_the_key(locked: LiveServer, host: bytes, path: bytes) -> None:
    with socket.create_connection(("127.0.0.1", locked.port), timeout=5) as connection:
        connection.sendall(b"GET %b HTTP/1.1\r\nhost: %b\r\n\r\n" % (path, host))
        answer = connection.recv(4096)
    assert answer.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 400 "))
    locked.next_is_right()


def test_the_right_keys_open_and_probes_are_open_to_all(locked: LiveServer) -> None:
    assert locked.chat().status_code == 200
    assert locked.client.get("/v1/models", headers={"authorization": "bearer other"}).status_code == 200
    for path in ("/health", "/ready", "/ping", "/version", "/metrics"):
        assert locked.client.get(path, headers={"authorization": "none"}).status_code == 200


def test_a_request_id_is_echoed_or_made(server: LiveServer) -> None:
    assert server.client.get("/health", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    made = server.client.get("/nowhere").headers["x-request-id"]
    assert len(made) == 32
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
