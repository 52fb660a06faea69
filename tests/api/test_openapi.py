"""`/openapi.json` is true: what is sent and answered is what it says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import ValidationError
from tests.api.document import Document
from tests.api.live_server import LiveServer, live_server

from firsttoken.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def document(shared_server: LiveServer) -> Document:
    return Document(shared_server.client)


def test_the_document_is_made_once_so_that_asking_for_it_holds_nobody_up(server: LiveServer) -> None:
    began = time.monotonic()
    assert len({server.client.get("/openapi.json").content for _ in range(100)}) == 1
    assert time.monotonic() - began < 5  # making it a hundred times takes some 20 s
    server.next_is_right()


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def test_every_reference_of_the_document_leads_somewhere(document: Document) -> None:
    found = set(references(document.whole))
    assert found
    for reference in found:
        assert document.resolve({"$ref": reference})


def test_bodies_are_described_by_the_schemas_that_check_them(document: Document) -> None:
    chat = document.whole["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]
    assert chat["schema"] == {"$ref": "#/components/schemas/ChatRequest"}
    schemas = document.whole["components"]["schemas"]
    assert {"messages", "temperature", "top_k"} <= set(schemas["ChatRequest"]["properties"])
    assert "Message" in schemas


@pytest.mark.parametrize("path", ["/health", "/ready", "/version", "/metrics", "/v1/models"])
def test_what_is_read_is_as_described(server: LiveServer, document: Document, path: str) -> None:
    document.holds_for(path, server.client.get(path))
    server.backend.state = "loading"
    document.holds_for(path, server.client.get(path))


def test_a_model_and_its_absence_are_as_described(server: LiveServer, document: Document) -> None:
    for name in ("tiny", "nobody"):
        document.holds_for("/v1/models/{name}", server.client.get(f"/v1/models/{name}"))


CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
ANTHROPIC = CHAT | {"max_tokens": 8}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}

CONTINUOUS = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", CHAT | {"logprobs": True, "top_logprobs": 3, "n": 2}),
        ("/v1/chat/completions", CHAT | USAGE),
        ("/v1/chat/completions", CHAT | {"stream": True, "logprobs": True, "top_logprobs": 3, "n": 2}),
        ("/v1/chat/completions", CHAT | {"temperature": -1}),
        ("/v1/chat/completions", CHAT | {"model": "nobody"}),
        ("/v1/chat/completions", CHAT | {"prompt_logprobs": 1, "return_token_ids": True, "n": 2}),
        ("/v1/chat/completions", CHAT | {"return_token_ids": True, "n": 2, **CONTINUOUS}),
        ("/v1/completions", {"prompt": "Hi", "prompt_logprobs": 1, "return_token_ids": True}),
        ("/v1/completions", {"prompt": "Hi", "return_token_ids": True, **CONTINUOUS}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/v1/completions", {"prompt": ["Hi", "Ho"], "n": 2, "logprobs": 2, "echo": True}),
        ("/v1/completions", {"prompt": "Hi", **USAGE}),
        ("/v1/completions", {"prompt": "Hi", "stream": True, "logprobs": 2, "echo": True}),
        ("/v1/completions", {}),
        ("/v1/responses", {"input": "Hi", "top_logprobs": 2, "metadata": {"a": "b"}}),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 2, "stream": True, "top_logprobs": 2}),
        ("/v1/responses", {"input": "Hi", "store": True}),
        ("/v1/messages", ANTHROPIC),
        ("/v1/messages", ANTHROPIC | {"stop_sequences": ["lo"]}),
        ("/v1/messages", ANTHROPIC | {"stream": True}),
        ("/v1/messages", ANTHROPIC | {"max_tokens": 0}),
        ("/v1/messages", ANTHROPIC | {"model": "nobody"}),
        ("/v1/messages/count_tokens", CHAT),
        ("/v1/messages/count_tokens", {}),
        ("/tokenize", {"prompt": "Hi", "return_token_strs": True}),
        ("/tokenize", CHAT),
        ("/tokenize", {"prompt": 1}),
        ("/detokenize", {"tokens": [10, 11]}),
        ("/detokenize", {"tokens": ["x"]}),
    ],
)
def test_what_is_answered_is_as_described(
    server: LiveServer, document: Document, path: str, body: dict[str, Any]
) -> None:
    document.holds_for(path, server.client.post(path, json=body))
    server.next_is_right()


@pytest.mark.parametrize("stream", [False, True])
def test_failures_are_as_described(server: LiveServer, document: Document, stream: bool) -> None:
    server.backend.fails_after = 2
    document.holds_for("/v1/chat/completions", server.chat(stream=stream))
    document.holds_for("/v1/responses", server.post("/v1/responses", input="Hi", stream=stream))
    document.holds_for("/v1/messages", server.post("/v1/messages", **ANTHROPIC, stream=stream))
    server.backend.fails_after = None
    server.backend.capacity = 0
    document.holds_for("/v1/completions", server.complete(stream=stream))
    document.holds_for("/v1/messages", server.post("/v1/messages", **ANTHROPIC, stream=stream))
    server.backend.state = "draining"
    document.holds_for("/v1/completions", server.complete(stream=stream))


def test_refusals_before_any_route_are_as_described(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, api_keys=("secret",), max_body_bytes=1000) as server:
        paths = ("/v1/completions", "/v1/messages")
        refused = [server.client.post(path, json={}) for path in paths]
        server.client.headers["authorization"] = "Bearer secret"
        document = Document(server.client)
        for path, response in zip(paths, refused, strict=True):
            document.holds_for(path, response)
            document.holds_for(path, server.post(path, prompt="a" * 2000))
            document.holds_for(path, server.client.post(path, json={}, headers={"x": "a" * 40_000}))
            document.holds_for(path, server.client.post(path, data={"prompt": "Hi"}))


TURN = [{"role": "user", "content": "Hi"}]
LEAST: dict[str, dict[str, object]] = {
    "/v1/chat/completions": {"messages": TURN, "max_tokens": 1},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 1},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 1},
    "/v1/messages": {"messages": TURN, "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": TURN},
}


@pytest.mark.parametrize("path", LEAST)
def test_a_field_may_be_null_where_the_document_says_so_and_nowhere_else(
    server: LiveServer, document: Document, path: str
) -> None:
    schema = document.whole["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    least = LEAST[path]
    document.check(least, schema)
    for name in document.resolve(schema)["properties"]:
        if name in least:
            continue
        body = least | {name: None}
        taken = server.client.post(path, json=body).status_code == 200
        assert taken == is_valid(document, body, schema), name


def is_valid(document: Document, body: object, schema: dict[str, Any]) -> bool:
    try:
        document.check(body, schema)
    except ValidationError:
        return False
    return True
