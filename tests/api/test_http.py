"""HTTP itself, as odd, hostile and broken clients speak it."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator

import pytest
from tests.api.live_server import LiveServer, live_server, post_unread, wait_until

from firsttoken.config import ServerConfig
from firsttoken.server.http_protocol import BoundedHttpProtocol, protocol_for
from firsttoken.tokenizer import Tokenizer

MAX_HEAD_BYTES = BoundedHttpProtocol.max_head_bytes
BODY = b'{"prompt": "Hi"}'
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"


def post(body: bytes = BODY, headers: bytes = b"") -> bytes:
    return b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n%b" % (headers, len(body), body)


def exchange(port: int, *parts: bytes) -> bytes:
    """All that the server answers until it closes the connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            while data := connection.recv(1 << 16):
                answer += data
        except ConnectionError:  # the server closed while more was on its way
            pass
    return answer


def error_of(answer: bytes, status: int) -> dict[str, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    error: dict[str, str] = json.loads(body)["error"]
    return error


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"FETCH / HTTP/1.1\r\n\r\n",
        "GET /你 HTTP/1.1\r\n\r\n".encode(),
        b"GET / HTTP/1.1\r\na b: c\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        CHUNKED + b"\r\nzz\r\n",
    ],
)
def test_what_is_not_http_is_a_400_in_openais_form(server: LiveServer, data: bytes) -> None:
    assert error_of(exchange(server.port, data), 400)["type"] == "invalid_request_error"
    server.next_is_right()


def test_what_is_not_http_after_an_answer_is_a_400_too(server: LiveServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(post())
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"\x00\r\n\r\n")
        error_of(connection.recv(4096), 400)
        assert connection.recv(4096) == b""


def test_a_refusal_never_passes_for_the_answer_to_an_earlier_request(server: LiveServer) -> None:
    server.backend.pace = 0.02
    answer = exchange(server.port, post(b'{"prompt": "Hi", "stream": true}') + b"GET / nonsense\r\n\r\n")
    assert b"400" not in answer
    wait_until(lambda: not server.backend.running)
    server.backend.pace = 0
    server.next_is_right()


@pytest.mark.parametrize("offer", [b"h2c", b"websocket"])
def test_an_offer_of_another_protocol_is_passed_over_and_its_body_read(server: LiveServer, offer: bytes) -> None:
    """The JDK's client offers HTTP/2 with its first request, whatever that is."""
    headers = b"connection: Upgrade, HTTP2-Settings, close\r\nupgrade: %b\r\nhttp2-settings: AAEAAEAAAAIA\r\n" % offer
    whole = post(headers=headers)
    for cut in (1, len(whole) - len(BODY) - 2, len(whole) - len(BODY), len(whole) - 3):
        answer = exchange(server.port, whole[:cut], whole[cut:])
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        assert b"Hello there." in answer
    server.next_is_right()


def test_trailers_are_no_headers(tokenizer: Tokenizer) -> None:
    trailers = b"authorization: Bearer secret\r\nx-request-id: mine\r\n"
    request = CHUNKED + b"connection: close\r\n\r\n10\r\n" + BODY + b"\r\n0\r\n" + trailers + b"\r\n"
    with live_server(tokenizer, api_keys=("secret",)) as locked:
        answer = exchange(locked.port, request)
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"mine" not in answer


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n", CHUNKED + b"\r\n10\r\n" + BODY + b"\r\n0\r\n"])
def test_headers_and_trailers_without_end_are_cut_off(server: LiveServer, start: bytes) -> None:
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(start)
        try:
            while sent < 100 * MAX_HEAD_BYTES:
                sent += connection.send(b"a: b\r\n" * 1000)
                time.sleep(0.001)
        except ConnectionError:
            pass
    assert sent < 100 * MAX_HEAD_BYTES
    server.next_is_right()


def test_requests_sent_ahead_are_all_answered_however_many(server: LiveServer) -> None:
    one = b"GET /version HTTP/1.1\r\nhost: x\r\nx-padding: " + b"a" * 200 + b"\r\n\r\n"
    count = 3 * MAX_HEAD_BYTES // len(one)
    answer = exchange(server.port, one * count + one.replace(b"host", b"connection: close\r\nhost"))
    assert answer.count(b"HTTP/1.1 200 ") == count + 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_the_engine_though_it_sent_more_ahead(server: LiveServer, stream: bool) -> None:
    server.backend.pace = 60
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        body = json.dumps({"prompt": "Hi", "stream": stream}).encode()
        connection.sendall(post(body) + b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        wait_until(lambda: bool(server.backend.running))
    wait_until(lambda: not server.backend.running, 0.5)
    server.backend.pace = 0
    server.next_is_right()


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_probes_answer_head_as_they_do_get(server: LiveServer, path: str) -> None:
    head = server.client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(server.client.get(path).content))
    server.backend.state = "dead"
    assert server.client.head(path).status_code == 503


class Hasty(BoundedHttpProtocol):
    head_seconds = 0.3
    request_seconds = 0.6
    tick_seconds = 0.05


class Unwaiting(BoundedHttpProtocol):
    send_seconds = 0.5
    tick_seconds = 0.05


class Unhurried(Unwaiting):
    send_seconds = 3.0  # a busy machine may stand still for seconds


@pytest.fixture(scope="module")
def hasty(tokenizer: Tokenizer) -> Iterator[LiveServer]:
    with live_server(tokenizer, http=Hasty) as running:
        yield running


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"GET /health HT", b""),
        (b"GET /health HTTP/1.1\r\n", b"a: b\r\n"),
        (post()[:-1], b""),
        (CHUNKED + b"\r\n", b"1\r\n \r\n"),
    ],
)
def test_a_request_that_arrives_too_slowly_is_ended(hasty: LiveServer, start: bytes, drop: bytes) -> None:
    began = time.monotonic()
    answer = b""
    with socket.create_connection(("127.0.0.1", hasty.port), timeout=0.1) as connection:
        connection.sendall(start)
        while time.monotonic() - began < 5:
            try:
                if data := connection.recv(4096):
                    answer += data
                    continue
                break
            except TimeoutError:
                connection.sendall(drop)
    assert time.monotonic() - began < 3
    assert error_of(answer, 408)["code"] == "request_timeout"
    hasty.next_is_right()


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_does_not_read_is_cut_off_and_its_request_freed(tokenizer: Tokenizer, stream: bool) -> None:
    """Whether the answer still grows, or is whole and waits: neither memory nor the connection is kept for ever."""
    with live_server(tokenizer, http=Unwaiting, max_model_len=10_000, send_buffer=8192) as server:
        server.says("0123456789" * 600)
        body = {"prompt": "Hi", "max_tokens": 8_000, "stream": stream, "logprobs": 0}
        with post_unread(server.port, body, receive_buffer=4096):
            wait_until(lambda: bool(server.backend.submitted), 20)
            wait_until(lambda: not server.connections, 60)
        wait_until(lambda: not server.backend.running, 10)
        server.next_is_right()


def test_a_client_that_reads_slowly_and_steadily_is_not_cut_off(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, http=Unhurried, max_model_len=20_000, send_buffer=8192) as server:
        server.says("0123456789" * 500)
        began = time.monotonic()
        body = {"prompt": "Hi", "max_tokens": 5_000, "stream": True, "logprobs": 5}
        with post_unread(server.port, body, 4096) as connection:
            connection.settimeout(20)
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                data = connection.recv(16 * 1024)
                assert data, "it was cut off"
                answer += data
                time.sleep(0.08)
        assert b"data: [DONE]" in answer
        assert time.monotonic() - began > Unhurried.send_seconds


def test_a_connection_too_many_is_told_so_and_the_others_go_on(tokenizer: Tokenizer) -> None:
    config = ServerConfig(tokenizer_path="", max_connections=6, api_workers=2)
    with live_server(tokenizer, http=protocol_for(config)) as server:
        server.next_is_right()  # one connection, kept alive
        idle = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(2)]
        wait_until(lambda: server.connections == 3)
        answer = exchange(server.port, post())
        assert error_of(answer, 503)["code"] == "too_many_connections"
        assert b"retry-after: 1\r\n" in answer.lower()
        server.next_is_right()
        for connection in idle:
            connection.close()
        wait_until(lambda: server.connections == 1)
        assert exchange(server.port, post(headers=b"connection: close\r\n")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("data", [b"", b"\r\n"])
def test_a_connection_on_which_nothing_is_asked_is_closed(hasty: LiveServer, data: bytes) -> None:
    began = time.monotonic()
    assert exchange(hasty.port, data)[:13] in (b"", b"HTTP/1.1 408 ")
    assert time.monotonic() - began < 3


def test_a_long_answer_is_no_slow_request(hasty: LiveServer) -> None:
    hasty.backend.pace = 0.1
    answer = exchange(hasty.port, post(headers=b"connection: close\r\n") + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    hasty.backend.pace = 0


def test_a_client_that_goes_away_while_it_sends_is_no_error_in_the_log(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
            connection.sendall(post()[:-3])
            time.sleep(0.05)
        server.next_is_right()
        time.sleep(0.05)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")] == []
