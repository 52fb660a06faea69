"""Web pages that strangers made, in the browser of somebody who runs a server."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.api.live_server import LiveServer, live_server, refused

from firsttoken.tokenizer import Tokenizer

BODY = {"prompt": "Hi"}


def ask(server: LiveServer, **headers: str) -> httpx.Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.client.post("/v1/completions", json=BODY, headers=given)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example"]
)
def test_a_name_that_somebody_pointed_at_this_machine_is_refused(server: LiveServer, host: str) -> None:
    assert refused(ask(server, host=host), None, 403)["code"] == "host_not_allowed"
    refused(server.client.get("/v1/models", headers={"host": host}), None, 403)
    assert server.backend.submitted == []
    server.next_is_right()


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:1", "[::1]:8000", "192.168.1.7", "gpu-box", "x.localhost", "a.local."]
)
def test_names_that_nobody_outside_can_own_are_served(server: LiveServer, host: str) -> None:
    assert ask(server, host=host).status_code == 200


def test_names_may_be_added_and_all_be_allowed(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, allowed_hosts=("llm.example", "*.Team.example")) as server:
        for host, status in (
            ("llm.example", 200),
            ("LLM.example:443", 200),
            ("a.b.team.example", 200),
            ("team.example", 403),
            ("other.example", 403),
            ("10.0.0.1", 200),
        ):
            assert ask(server, host=host).status_code == status, host
    with live_server(tokenizer, allowed_hosts=("*",)) as server:
        assert ask(server, host="any.example").status_code == 200


@pytest.mark.parametrize("config", [{"api_keys": ("k",)}, {"host": "0.0.0.0"}])
def test_a_server_that_strangers_may_reach_anyway_or_that_has_keys_goes_by_any_name(
    tokenizer: Tokenizer, config: dict[str, Any]
) -> None:
    with live_server(tokenizer, **config) as server:
        assert ask(server, host="llm.example", authorization="Bearer k").status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "file://"])
def test_a_page_of_another_origin_can_ask_nothing(server: LiveServer, origin: str) -> None:
    assert refused(ask(server, origin=origin), None, 403)["code"] == "origin_not_allowed"
    preflight = {"origin": origin, "access-control-request-method": "POST"}
    answer = server.client.options("/v1/completions", headers=preflight)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    read = server.client.get("/v1/models", headers={"origin": origin})
    assert "access-control-allow-origin" not in read.headers
    assert server.backend.submitted == []
    server.next_is_right()


def test_a_page_of_the_servers_own_origin_may_ask(server: LiveServer) -> None:
    host = f"127.0.0.1:{server.port}"
    assert ask(server, origin=f"http://{host}", host=host).status_code == 200


@pytest.mark.parametrize(
    "kind",
    ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", "Text/Plain;charset=a"],
)
def test_what_a_form_can_send_is_refused(server: LiveServer, kind: str) -> None:
    for path in ("/v1/completions", "/tokenize"):
        answer = server.client.post(path, content=b'{"prompt": "Hi"}', headers={"content-type": kind})
        assert refused(answer, None, 415)["code"] == "unsupported_media_type"
    assert server.backend.submitted == []
    server.next_is_right()


@pytest.mark.parametrize("kind", [None, "application/json", "application/json; charset=utf-8"])
def test_json_is_taken_whether_named_or_not(server: LiveServer, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    answer = server.client.post("/v1/completions", content=b'{"prompt": "Hi"}', headers=headers)
    assert answer.status_code == 200


def test_named_origins_are_given_leave_and_others_are_not(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, allowed_origins=("https://chat.example",), api_keys=("k",)) as server:
        preflight = {
            "origin": "https://chat.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, content-type",
        }
        leave = server.client.options("/v1/chat/completions", headers=preflight)
        assert leave.status_code == 200
        assert leave.headers["access-control-allow-origin"] == "https://chat.example"
        answer = ask(server, origin="https://chat.example", authorization="Bearer k")
        assert answer.headers["access-control-allow-origin"] == "https://chat.example"
        assert "X-Request-Id" in answer.headers["access-control-expose-headers"]
        refusal = ask(server, origin="https://chat.example", authorization="Bearer wrong")
        assert refusal.status_code == 401
        assert refusal.headers["access-control-allow-origin"] == "https://chat.example", "its page may read why"
        other = ask(server, origin="https://evil.example", authorization="Bearer k")
        assert "access-control-allow-origin" not in other.headers
