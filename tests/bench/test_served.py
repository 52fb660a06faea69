from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from firsttoken.bench.http_client import Address
from firsttoken.bench.served import Served
from firsttoken.errors import ConfigError, Unavailable


def served(answers: Mapping[str, tuple[int, dict[str, Any]]]) -> Served:
    """A server of fixed answers by path; everything else is 404."""

    def handle(request: httpx.Request) -> httpx.Response:
        status, body = answers.get(request.url.path, (404, {}))
        return httpx.Response(status, json=body)

    return Served(Address.parse("http://x:1/v1"), transport=httpx.MockTransport(handle))


def models(*entries: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, {"data": list(entries)}


def test_a_vllm_server_is_known_by_its_models_owner() -> None:
    entry = {"id": "Qwen/Qwen3", "owned_by": "vllm", "max_model_len": 40960, "root": "Qwen/Qwen3"}
    with served({"/v1/models": models(entry), "/version": (200, {"version": "0.26.0"})}) as server:
        found = server.identify(None)
    assert (found.kind, found.version, found.model, found.max_model_len) == ("vllm", "0.26.0", "Qwen/Qwen3", 40960)
    assert found.details == {"root": "Qwen/Qwen3"}


def test_llama_cpp_tells_its_context_and_build_elsewhere() -> None:
    props = {"build_info": "b7000", "default_generation_settings": {"n_ctx": 8192}}
    entry = {"id": "m.gguf", "owned_by": "llamacpp"}
    with served({"/v1/models": models(entry), "/props": (200, props)}) as server:
        found = server.identify("m.gguf")
    assert (found.kind, found.version, found.max_model_len) == ("llama.cpp", "b7000", 8192)


def test_sglang_tells_its_version_elsewhere() -> None:
    entry = {"id": "m", "owned_by": "sglang", "max_model_len": 4096}
    with served({"/v1/models": models(entry), "/get_server_info": (200, {"version": "0.5"})}) as server:
        found = server.identify(None)
    assert (found.kind, found.version) == ("sglang", "0.5")


def test_a_model_that_is_not_served_is_told() -> None:
    server = served({"/v1/models": models({"id": "a"}, {"id": "b"})})
    assert server.identify("b").model == "b"
    with pytest.raises(ConfigError, match="serves a, b, not c"):
        server.identify("c")


def test_a_server_that_lists_nothing_needs_a_name() -> None:
    server = served({})
    assert server.identify("m").model == "m"
    with pytest.raises(ConfigError, match="--model"):
        server.identify(None)


def test_a_missing_key_is_told() -> None:
    with pytest.raises(ConfigError, match="--api-key"):
        served({"/v1/models": (401, {})}).identify(None)


def test_a_server_that_is_still_loading_is_told() -> None:
    with pytest.raises(Unavailable, match=r"not ready \(HTTP 503\)"):
        served({"/v1/models": (503, {})}).identify(None)


def test_no_server_at_all_is_told() -> None:
    with Served(Address.parse("http://127.0.0.1:9")) as server:
        assert not server.answers()
        assert not server.is_ready()
        with pytest.raises(Unavailable, match="--launch"):
            server.identify(None)


@pytest.mark.parametrize(
    ("health", "listed", "ready"),
    [(200, 200, True), (503, 200, False), (404, 200, True), (200, 503, False), (200, 401, True)],
)
def test_ready_is_healthy_with_models_listed(health: int, listed: int, ready: bool) -> None:
    server = served({"/health": (health, {}), "/v1/models": (listed, {"data": []})})
    assert server.is_ready() is ready
    assert server.answers()


def test_tokens_and_usage_are_read_and_their_absence_is_none() -> None:
    usage = (200, {"usage": {"prompt_tokens": 7}})
    full = served({"/tokenize": (200, {"tokens": [1, 2]}), "/v1/completions": usage, "/v1/chat/completions": usage})
    assert full.tokenize(" a b") == [1, 2]
    assert [full.prompt_tokens(kind, " a") for kind in ("ids", "text", "chat")] == [7, 7, 7]
    bare = served({"/v1/completions": (400, {}), "/v1/chat/completions": (200, {})})
    assert bare.tokenize(" a b") is None
    assert [bare.prompt_tokens(kind, " a") for kind in ("text", "chat")] == [None, None]


def test_llama_cpps_form_of_tokenize_is_tried_second() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"tokens": [5] if b'"content"' in request.content else []})

    server = Served(Address.parse("http://x"), transport=httpx.MockTransport(handle))
    assert server.tokenize(" a") == [5]


@pytest.mark.parametrize(
    ("strict", "chat", "refused"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_a_field_is_refused_where_the_same_request_without_it_is_answered(
    strict: bool, chat: bool, refused: bool
) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        good = chat and not (strict and b"ignore_eos" in request.content)
        return httpx.Response(200 if good else 400, json={"choices": []})

    server = Served(Address.parse("http://x:1"), transport=httpx.MockTransport(handle))
    assert server.refuses({"ignore_eos": True}) is refused
