"""Clients that go away, and clients that hardly read."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest
from tests.api.live_server import LiveServer, chunks_of, live_server, post_unread, wait_until

from firsttoken.tokenizer import Tokenizer


def send(server: LiveServer, body: dict[str, Any], *, receive_buffer: int | None = None) -> socket.socket:
    return post_unread(server.port, {"messages": [{"role": "user", "content": "Hi"}], **body}, receive_buffer)


def gauge(server: LiveServer, name: str) -> float:
    lines = server.client.get("/metrics").text.splitlines()
    (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith(f"firsttoken:{name}{{")]
    return float(value)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_in_mid_answer_frees_the_engine(server: LiveServer, stream: bool) -> None:
    server.says("x" * 200)
    server.backend.pace = 0.02
    connection = send(server, {"stream": stream})
    wait_until(lambda: server.backend.steps > 2)
    assert gauge(server, "num_requests_running") == 1
    connection.close()
    wait_until(lambda: not server.backend.running, 0.5)
    assert len(server.backend.aborted) == 1
    assert gauge(server, "num_requests_running") == 0
    server.backend.pace = 0
    server.next_is_right()


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_before_the_first_token_frees_the_engine(server: LiveServer, stream: bool) -> None:
    server.backend.pace = 60  # queued, or in a long prefill: nothing comes
    connection = send(server, {"stream": stream, "n": 3})
    wait_until(lambda: bool(server.backend.running))
    connection.close()
    wait_until(lambda: not server.backend.running, 0.5)
    assert server.backend.steps == 0
    server.backend.pace = 0
    server.next_is_right()


def test_every_prompt_of_a_request_is_freed(server: LiveServer) -> None:
    server.backend.pace = 60
    with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=server.url, timeout=0.2) as impatient:
        impatient.post("/v1/completions", json={"prompt": ["a", "b", "c"]})
    wait_until(lambda: not server.backend.running, 0.5)
    assert len(server.backend.aborted) == 3
    server.backend.pace = 0
    server.next_is_right()


def test_an_answer_that_ended_by_itself_is_not_aborted(server: LiveServer) -> None:
    server.chat()
    server.chat_stream()
    assert server.backend.aborted == []


def test_a_slow_reader_slows_nobody_and_gets_its_text_merged(tokenizer: Tokenizer) -> None:
    """It reads nothing until the engine is done with it: far more than the socket's buffers hold in small chunks."""
    text = "0123456789" * 300
    with live_server(tokenizer, max_model_len=4096, send_buffer=8192) as server:
        server.says(text)
        slow = send(server, {"stream": True}, receive_buffer=4096)
        wait_until(lambda: bool(server.backend.running))
        assert server.chat(max_tokens=5).elapsed.total_seconds() < 1.0
        wait_until(lambda: not server.backend.running, 20)
        body = read_chunked(slow)
        slow.close()
        server.next_is_right()
    chunks = chunks_of(body)
    pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(pieces) == text
    assert len(chunks) < len(text) * 0.9
    assert max(map(len, pieces)) > 100, "what piled up was not merged"


def read_chunked(connection: socket.socket) -> bytes:
    """The body of a chunked answer, read to its end."""
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        data += connection.recv(1 << 16)
    _, _, rest = data.partition(b"\r\n\r\n")
    body = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        if not (length := int(size, 16)):
            return body
        body += rest[:length]
        rest = rest[length + 2 :]
