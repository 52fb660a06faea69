"""A tiny random model that knows nothing of tools calls them all the same where it must: the grammar sees to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import validate
from tests.api.live_server import refused
from tests.api.whole_server import WholeServer, whole_server
from tests.builders import tiny_model_folder
from tests.tokenizer.templates import CHATML

PAINT = {
    "type": "function",
    "function": {
        "name": "paint",
        "parameters": {
            "type": "object",
            "properties": {
                "color": {"enum": ["red", "绿"]},
                "size": {"$ref": "#/$defs/Size"},
                "name": {"maxLength": 5},
            },
            "required": ["color", "size"],
            "additionalProperties": False,
            "$defs": {"Size": {"properties": {"cm": {"enum": [1, 2]}}, "additionalProperties": False}},
        },
    },
}
STOP = {"type": "function", "function": {"name": "停"}}
SCHEMAS = {"paint": PAINT["function"]["parameters"], "停": {"type": "object", "additionalProperties": False}}  # type: ignore[index]
FIELDS: dict[str, Any] = {"tools": [PAINT, STOP], "max_tokens": 400, "temperature": 1}
NAMED = {"type": "function", "function": {"name": "paint"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeServer]:
    folder = tmp_path_factory.mktemp("model")
    (folder / "template.jinja").write_text(CHATML, encoding="utf-8")
    model = tiny_model_folder(folder / "tiny")
    flags = ("--chat-template", str(folder / "template.jinja"), "--reasoning-parser", "none", "--dtype", "float32")
    with whole_server(model, *flags, "--max-model-len", "1024", "--kv-cache-memory", "16MiB") as running:
        yield running


def check(choice: dict[str, Any], calls: list[dict[str, Any]]) -> None:
    """Whole calls keep to their schemas; an answer that was cut has none."""
    if choice["finish_reason"] == "length":
        return
    assert choice["finish_reason"] == "tool_calls"
    assert calls
    for call in calls:
        validate(json.loads(call["function"]["arguments"]), SCHEMAS[call["function"]["name"]])


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_calls_keep_to_their_schemas(server: WholeServer, choice: Any) -> None:
    answer = server.chat("Paint!", **FIELDS, tool_choice=choice, n=8, seed=1)
    ended = [each for each in answer["choices"] if each["finish_reason"] == "tool_calls"]
    assert ended
    for each in answer["choices"]:
        check(each, each["message"].get("tool_calls", []))
    if choice == NAMED:
        assert {call["function"]["name"] for each in ended for call in each["message"]["tool_calls"]} == {"paint"}
        assert {len(each["message"]["tool_calls"]) for each in ended} == {1}
    assert all(each["message"]["content"] is None for each in ended)
    server.next_is_right()


def test_a_streamed_call_is_the_unstreamed_one(server: WholeServer) -> None:
    fields = {**FIELDS, "tool_choice": NAMED, "seed": 3, "n": 8}
    whole = {choice["index"]: choice for choice in server.chat("Paint!", **fields)["choices"]}
    arguments = dict.fromkeys(range(8), "")
    reasons = {}
    for chunk in server.stream("/v1/chat/completions", messages=[{"role": "user", "content": "Paint!"}], **fields):
        for choice in chunk["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                arguments[choice["index"]] += call["function"]["arguments"]
            reasons[choice["index"]] = choice["finish_reason"]
    assert reasons == {index: choice["finish_reason"] for index, choice in whole.items()}
    assert "tool_calls" in reasons.values()
    for index, choice in whole.items():
        check(choice, choice["message"].get("tool_calls", []))
        if reasons[index] == "tool_calls":
            assert arguments[index] == choice["message"]["tool_calls"][0]["function"]["arguments"]
    server.next_is_right()


def test_a_call_cut_by_the_length_is_no_call(server: WholeServer) -> None:
    (cut,) = server.chat("Paint!", **{**FIELDS, "max_tokens": 12}, tool_choice="required")["choices"]
    assert cut["finish_reason"] == "length"
    assert "tool_calls" not in cut["message"]
    server.next_is_right()


def test_a_strict_schema_that_cannot_be_enforced_is_refused(server: WholeServer) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "not": {"const": "b"}}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema, "strict": True}}
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [tool]}
    refused(server.client.post("/v1/chat/completions", json=body), "tools")
    server.next_is_right()
