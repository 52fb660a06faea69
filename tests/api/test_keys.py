"""API keys: of flags, and of a file that changes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.live_server import LiveServer, live_server, refused

from firsttoken.errors import ConfigError
from firsttoken.server.api_keys import ApiKeys, read_keys
from firsttoken.tokenizer import Tokenizer


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


def test_a_file_may_hold_several_keys(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the team\n first-key \n\nsecond-key\r\n")
    with live_server(tokenizer, api_key_file=str(file), api_keys=("flag-key",)) as server:
        for key, status in (("first-key", 200), ("second-key", 200), ("flag-key", 200), ("# of the team", 401)):
            headers = {"authorization": f"Bearer {key}"}
            assert server.client.get("/v1/models", headers=headers).status_code == status, key
        refused(server.client.get("/v1/models"), None, 401)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_changed_file_counts_within_a_second_and_a_broken_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, clock = tmp_path / "keys", Clock()
    file.write_text("old\n")
    keys = ApiKeys((), str(file), clock)
    assert (b"old" in keys, b"new" in keys) == (True, False)
    replacement = tmp_path / "next"
    replacement.write_text("new\n")
    os.replace(replacement, file)
    clock.now += 1.0
    assert (b"old" in keys, b"new" in keys) == (False, True)
    for break_it in (lambda: file.write_text("# none\n"), file.unlink):
        break_it()
        clock.now += 1.0
        assert (b"old" in keys, b"new" in keys) == (False, True)
        assert "The keys read before stay." in caplog.messages[-1]
    file.write_text("newest\n")
    clock.now += 1.0
    assert (b"new" in keys, b"newest" in keys) == (False, True)
    assert not any("newest" in message for message in caplog.messages), "keys are never printed"


@pytest.mark.parametrize("content", [b"", b"# only\n", b"two words\n", "schl\u00fcssel\n".encode(), b"a\n" * 600_000])
def test_a_file_that_holds_no_usable_keys_is_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="The API key file"):
        read_keys(str(file))
