"""Answers that keep to a schema, an expression, a list or a grammar, over HTTP, with a model whose weights are random:
whatever a mask allows it says sooner or later.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest
from tests.api.live_server import refused, wait_until
from tests.api.whole_server import WholeServer, whole_server
from tests.builders import tiny_model_folder, tiny_tokenizer

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["cat", "dog", None]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "age", "kind", "tags"],
    "additionalProperties": False,
}
COMPACT = {"json": SCHEMA, "disable_any_whitespace": True}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["value", "next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeServer]:
    folder = tiny_model_folder(tmp_path_factory.mktemp("model") / "tiny")
    flags = ("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8", "--kv-cache-memory", "8MiB")
    with whole_server(folder, *flags) as running:
        yield running


def choices(server: WholeServer, **fields: Any) -> list[dict[str, Any]]:
    answer = server.chat("Describe a pet.", **{"max_tokens": 300, "seed": 1} | fields)
    found: list[dict[str, Any]] = answer["choices"]
    return found


def text(server: WholeServer, **fields: Any) -> str:
    """The whole text of one answer that ended by itself."""
    (choice,) = choices(server, **fields)
    assert choice["finish_reason"] == "stop"
    content: str = choice["message"]["content"]
    return content


def named(schema: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "pet", "schema": schema, **fields}}


def test_a_schema_holds_from_the_first_token_to_the_last(server: WholeServer) -> None:
    for seed in range(8):
        for form in ({"response_format": named(SCHEMA, strict=True)}, {"structured_outputs": COMPACT}):
            jsonschema.validate(json.loads(text(server, seed=seed, **form)), SCHEMA)
    assert json.loads(text(server, temperature=0, structured_outputs=COMPACT)).keys() == SCHEMA["properties"].keys()


def test_a_schema_may_be_a_text_and_its_whitespace_a_pattern(server: WholeServer) -> None:
    assert not re.search(r"[\s]", re.sub('"[^"]*"', "", text(server, structured_outputs=COMPACT)))
    spaced = text(server, structured_outputs={"json": json.dumps({"const": {"a": [1]}}), "whitespace_pattern": "  "})
    assert json.loads(spaced) == {"a": [1]}
    assert set(re.findall(r"\s+", spaced)) <= {"  "}


def test_every_answer_of_a_request_keeps_to_its_schema(server: WholeServer) -> None:
    found = choices(server, n=4, structured_outputs=COMPACT)
    assert len({choice["message"]["content"] for choice in found}) == 4
    for choice in found:
        jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)


def test_a_json_object_is_one(server: WholeServer) -> None:
    for form in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
        for choice in choices(server, n=8, **form):
            content = choice["message"]["content"]
            assert content.startswith("{")
            if choice["finish_reason"] == "stop":
                assert isinstance(json.loads(content), dict)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"structured_outputs": {"regex": r"\d{3}-[a-c]{2}"}}, r"[0-9]{3}-[a-c]{2}"),
        ({"guided_regex": "(yes|no)/"}, "(yes|no)/"),
        ({"structured_outputs": {"choice": ["red fox", "dog", 'a "b" 世界 \\']}}, r"red fox|dog|a \"b\" 世界 \\"),
        ({"guided_choice": ["positive"]}, "positive"),
        ({"structured_outputs": {"grammar": 'root ::= "a" rest\nrest ::= [0-9]{1,4} "!"'}}, "a[0-9]{1,4}!"),
        ({"guided_grammar": 'start: "SELECT " NAME\nNAME: /[a-z]{1,5}/'}, "SELECT [a-z]{1,5}"),
        ({"structured_outputs": {"grammar": 'start: "f(" %json {"type": "boolean"} ")"'}}, r"f\((true|false)\)"),
        ({"guided_json": {"type": "boolean"}}, "true|false"),
    ],
)  # fmt: skip
def test_an_expression_a_choice_and_a_grammar_hold_in_chats_and_completions(
    server: WholeServer, form: dict[str, Any], expected: str
) -> None:
    for seed in range(4):
        assert re.fullmatch(expected, text(server, seed=seed, **form))
    (choice,) = server.complete("The pet is", max_tokens=60, **form)["choices"]
    assert choice["finish_reason"] == "stop"
    assert re.fullmatch(expected, choice["text"])


def test_a_special_token_is_named_without_quotes(server: WholeServer) -> None:
    form = {"grammar": 'start: "a" <|im_start|> "b"'}
    assert text(server, structured_outputs=form, skip_special_tokens=False) == "a<|im_start|>b"
    quoted = {"grammar": 'start: "a<|im_start|>b"'}
    (choice,) = choices(server, structured_outputs=quoted, return_token_ids=True)
    assert choice["message"]["content"] == "a<|im_start|>b"
    assert tiny_tokenizer().token_to_id("<|im_start|>") not in choice["token_ids"]


def test_a_stream_joins_to_the_same_answer(server: WholeServer) -> None:
    fields: dict[str, Any] = {"seed": 3, "max_tokens": 300, "structured_outputs": COMPACT}
    messages = [{"role": "user", "content": "Describe a pet."}]
    chunks = server.stream("/v1/chat/completions", messages=messages, **fields)
    deltas = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
    assert len(deltas) > 5
    assert "".join(deltas) == text(server, **fields)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_cut_answer_says_that_it_is_cut(server: WholeServer) -> None:
    (choice,) = choices(server, structured_outputs=COMPACT, max_tokens=5)
    assert choice["finish_reason"] == "length"
    (choice,) = choices(server, structured_outputs=COMPACT, stop=['"age"'])
    assert choice["finish_reason"] == "stop"
    assert '"age"' not in choice["message"]["content"]


@pytest.mark.parametrize("fields", [{"min_tokens": 100}, {"ignore_eos": True}, {"logit_bias": {"1": 100, "90": -100}}])
def test_the_grammars_end_is_the_answers_end_whatever_else_is_asked(
    server: WholeServer, fields: dict[str, Any]
) -> None:
    jsonschema.validate(json.loads(text(server, structured_outputs=COMPACT, **fields)), SCHEMA)
    assert text(server, structured_outputs={"regex": "(ab){3}"}, **fields) == "ababab"


def test_min_tokens_and_ignore_eos_hold_back_an_end_that_need_not_be(server: WholeServer) -> None:
    greedy: dict[str, Any] = {"structured_outputs": {"regex": "[a-z]*"}, "max_tokens": 40}
    for seed in range(4):
        (choice,) = choices(server, min_tokens=20, seed=seed, return_token_ids=True, **greedy)
        assert len(choice["token_ids"]) > 20 or choice["finish_reason"] == "length"
        (choice,) = choices(server, ignore_eos=True, seed=seed, return_token_ids=True, **greedy)
        assert (len(choice["token_ids"]), choice["finish_reason"]) == (40, "length")


def test_logprobs_are_those_of_the_models_own_distribution(server: WholeServer) -> None:
    (choice,) = choices(server, structured_outputs={"choice": ["z"]}, logprobs=True, top_logprobs=5, temperature=0)
    (entry,) = choice["logprobs"]["content"]
    assert entry["token"] == "z"
    assert entry["logprob"] < entry["top_logprobs"][0]["logprob"] < 0
    assert [each["token"] for each in entry["top_logprobs"]] != ["z"]


def test_what_can_go_on_for_ever_ends(server: WholeServer) -> None:
    never = {str(tiny_tokenizer().token_to_id("!")): -100}
    endless = {"grammar": 'start: /[ \\n]+/ "!"'}
    (choice,) = choices(server, structured_outputs=endless, max_tokens=None, logit_bias=never)
    assert choice["finish_reason"] == "length"
    (choice,) = choices(server, guided_grammar='start: "a" start', max_tokens=None)
    assert choice["finish_reason"] == "length"
    for seed in range(4):
        (choice,) = choices(server, structured_outputs={"json": TREE}, seed=seed)
        if choice["finish_reason"] == "stop":
            jsonschema.validate(json.loads(choice["message"]["content"]), TREE)
        else:
            assert choice["finish_reason"] == "length"
        assert not re.search(r"\s{40}", choice["message"]["content"])


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a broken expression": ({"structured_outputs": {"regex": "["}}, "structured_outputs.regex"),
    "a look-ahead": ({"guided_regex": "(?=a)a"}, "guided_regex"),
    "an unsatisfiable schema": (
        {"response_format": named({"type": "integer", "minimum": 5, "maximum": 3})},
        "response_format.json_schema.schema",
    ),
    "a schema that is only itself": ({"guided_json": {"$ref": "#"}}, "guided_json"),
    "a schema from elsewhere": ({"guided_json": {"$ref": "http://127.0.0.1/s.json"}}, "guided_json"),
    "a strict schema with a keyword that cannot be held": (
        {"response_format": named({"type": "array", "uniqueItems": True}, strict=True)},
        "response_format.json_schema.schema",
    ),
    "a schema of a megabyte": (
        {"response_format": named({"enum": [f"word {i}" for i in range(70_000)]})},
        "response_format.json_schema.schema",
    ),
    "a deep schema": ({"structured_outputs": {"json": deep(70)}}, "structured_outputs.json"),
    "a deep schema as a text": ({"structured_outputs": {"json": '{"items":' * 9999}}, "structured_outputs.json"),
    "a schema that is a list": ({"structured_outputs": {"json": [{}]}}, "structured_outputs.json"),
    "a deep expression": ({"guided_regex": "(" * 300 + ")" * 300}, "guided_regex"),
    "no choices": ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    "a grammar that ends too early": ({"structured_outputs": {"grammar": "root ::= ("}}, "structured_outputs.grammar"),
    "a deep grammar": ({"structured_outputs": {"grammar": "root ::= " + "(" * 3000}}, "structured_outputs.grammar"),
    "an unknown token": ({"guided_grammar": "start: <|nobody|>"}, "guided_grammar"),
    "whitespace that is no pattern": (
        {"structured_outputs": {"json": {}, "whitespace_pattern": "["}},
        "structured_outputs.json",
    ),
    "whitespace of no JSON": ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}, "structured_outputs"),
    "two at once": ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    "two of two kinds": (
        {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
        "structured_outputs.regex",
    ),
    "none": ({"structured_outputs": {}}, "structured_outputs"),
    "structural tags": ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
    "an unknown format": ({"response_format": {"type": "structural_tag"}}, "response_format.type"),
    "a format without its schema": ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_grammar_is_refused_at_once_and_by_name(server: WholeServer, name: str) -> None:
    form, param = BAD[name]
    body = {"messages": [{"role": "user", "content": "Hi"}], **form}
    for _ in range(2):  # the second answer may come from what is remembered
        begin = time.monotonic()
        error = refused(server.client.post("/v1/chat/completions", content=json.dumps(body)), param)
        assert time.monotonic() - begin < 5
        assert len(error["message"]) < 500
    wait_until(server.is_idle)
    server.next_is_right()


def test_a_lenient_schema_keeps_to_what_can_be_held(server: WholeServer) -> None:
    schema = {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 2, "maxItems": 3}
    answer = json.loads(text(server, response_format=named(schema)))
    assert 2 <= len(answer) <= 3
    assert set(answer) <= {True, False}


def test_bad_grammars_touch_no_request_that_runs_beside_them(server: WholeServer) -> None:
    plain: dict[str, Any] = {"temperature": 0, "max_tokens": 200, "ignore_eos": True}
    expected = server.complete("The quick", **plain)["choices"]
    shaped = text(server, structured_outputs=COMPACT)
    heavy = {"structured_outputs": {"regex": "|".join(f"w{i}[a-z]*" for i in range(4000))}}
    forms = [BAD["a broken expression"][0], BAD["an unsatisfiable schema"][0], heavy]
    with ThreadPoolExecutor(6) as pool:
        bad = [
            pool.submit(server.client.post, "/v1/completions", json={"prompt": "Hi", "max_tokens": 1, **form})
            for form in forms * 6
        ]
        good = [pool.submit(server.complete, "The quick", **plain) for _ in range(4)]
        same = pool.submit(text, server, structured_outputs=COMPACT)
        assert sorted({future.result().status_code for future in bad}) == [200, 400]
        assert all(future.result()["choices"] == expected for future in good)
        assert same.result() == shaped
    wait_until(server.is_idle)
    server.next_is_right()
