"""Wrong values are refused at once, by name, in one sentence; known fields are never silently ignored."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from tests.api.live_server import LiveServer, live_server, refused

from firsttoken.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("repetition_penalty", 0),
        ("repetition_penalty", -1),
        ("temperature", -1),
        ("temperature", 2.1),
        ("temperature", "0.5"),
        ("temperature", True),
        ("top_p", 0),
        ("top_p", 1.01),
        ("min_p", -0.1),
        ("min_p", 2),
        ("top_k", -2),
        ("top_k", 1.5),
        ("presence_penalty", 3),
        ("frequency_penalty", -3),
        ("seed", 2**63),
        ("seed", 1.5),
        ("n", 0),
        ("n", 1_000_000),
        ("max_tokens", -1),
        ("max_tokens", "10"),
        ("min_tokens", -1),
        ("stream", "yes"),
        ("priority", 2**40),
        ("cache_salt", ""),
        ("truncate_prompt_tokens", 0),
        ("stop_token_ids", [999_999]),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", 1),
        ("stop_token_ids", list(range(1000))),
        ("logit_bias", {"999999": 1}),
        ("logit_bias", {"foo": 0}),
        ("logit_bias", {"1": 1000}),
        ("logit_bias", {"1": "1"}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"1" * 5000: 1}),
        ("logit_bias", [1]),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [999_999]),
        ("allowed_token_ids", list(range(20_000))),
        ("bad_words", ["x"] * 1000),
        ("bad_words", "x"),
        ("prompt_logprobs", -1),
        ("prompt_logprobs", 1_000_000),
        ("return_token_ids", 1),
        ("spaces_between_special_tokens", "no"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(server: LiveServer, field: str, value: object) -> None:
    refused(server.chat(**{field: value}), field)
    refused(server.complete(**{field: value}), field)
    assert server.backend.submitted == []
    server.next_is_right()


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "repetition_penalty", "presence_penalty", "min_p"])
def test_numbers_that_are_none_are_refused_by_name(server: LiveServer, field: str, text: str) -> None:
    content = f'{{"messages": [{{"role": "user", "content": "Hi"}}], "{field}": {text}}}'
    refused(server.client.post("/v1/chat/completions", content=content), field)
    server.next_is_right()


def test_a_bad_word_without_a_character_is_refused_with_its_place(server: LiveServer) -> None:
    refused(server.chat(bad_words=["a", ""]), "bad_words[1]")
    server.next_is_right()


def test_bad_words_reach_the_engine_as_their_tokens_with_and_without_a_space_before(server: LiveServer) -> None:
    server.chat(bad_words=["ab", " c"], allowed_token_ids=[5, 6])
    sampling = server.backend.submitted[0].sampling
    spelled = [server.vocabulary.tokenizer.encode(word, add_special_tokens=False) for word in ("ab", " ab", " c")]
    assert sampling.bad_words == tuple(map(tuple, spelled))
    assert sampling.allowed_token_ids == (5, 6)


def test_a_bias_that_is_no_number_is_refused(server: LiveServer) -> None:
    content = '{"prompt": "Hi", "logit_bias": {"1": NaN}}'
    refused(server.client.post("/v1/completions", content=content), "logit_bias")
    server.next_is_right()


def test_too_many_alternatives_or_choices_are_refused_before_any_memory_is_taken(server: LiveServer) -> None:
    refused(server.chat(logprobs=True, top_logprobs=1_000_000), "top_logprobs")
    refused(server.chat(top_logprobs=2), "top_logprobs")
    refused(server.complete(logprobs=1_000_000), "logprobs")
    refused(server.complete(n=1_000_000), "n")
    refused(server.complete(best_of=1_000_000), "best_of")
    refused(server.chat(best_of=1_000_000), "best_of")
    refused(server.complete(["x"] * 200, n=16), "n")
    refused(server.complete(["x"] * 1000), "prompt")
    assert server.backend.submitted == []
    server.next_is_right()


def test_best_of_n_without_a_choice_to_make_is_accepted(server: LiveServer) -> None:
    assert len(server.complete(n=2, best_of=2).json()["choices"]) == 2


@pytest.mark.parametrize("prompt", ["", [""], [], [[]], ["ok", ""], None, 5, [1.5], [True], ["a", [1]], [None]])
def test_a_prompt_without_content_or_form_is_refused(server: LiveServer, prompt: object) -> None:
    if prompt == ["a", [1]]:  # a text and ids side by side are fine
        assert server.complete(prompt).status_code == 200
    else:
        refused(server.complete(prompt), "prompt")
        assert server.backend.submitted == []
    server.next_is_right()


def test_a_model_with_a_first_token_goes_on_from_it_where_the_prompt_is_empty(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, bos=7) as server:
        for prompt in ("", [""]):
            assert server.complete(prompt).status_code == 200
            assert server.backend.submitted[-1].prompt_token_ids == [7]
        refused(server.complete([]), "prompt")
        server.next_is_right()


@pytest.mark.parametrize("ids", [[999_999], [-1], [0, 2**70], [[1, 2], [3, 999_999]]])
def test_token_ids_that_the_model_does_not_have_are_refused(server: LiveServer, ids: list[Any]) -> None:
    refused(server.complete(ids), "prompt")
    server.next_is_right()


def test_the_padded_vocabulary_is_no_prompt(server: LiveServer) -> None:
    info = server.backend.info
    assert info is not None
    assert info.token_id_limit < info.vocab_size
    refused(server.complete([info.token_id_limit]), "prompt")
    assert server.complete([info.token_id_limit - 1]).status_code == 200


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (None, "messages"),
        ("Hi", "messages"),
        ([1], "messages[0]"),
        ([{"content": "Hi"}], "messages[0].role"),
        ([{"role": "wizard", "content": "Hi"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "messages[0].content"),
        ([{"role": "user", "content": ["Hi"]}], "messages[0].content"),
        ([{"role": "tool", "content": "4"}], "messages[0].tool_call_id"),
        (
            [{"role": "user", "content": "Hi", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}],
            "messages[0].tool_calls",
        ),
        ([{"role": "user", "content": "Hi", "audio": {"id": "x"}}], "messages[0].audio"),
    ],
)
def test_messages_of_no_known_form_are_refused_where_they_are_wrong(
    server: LiveServer, messages: object, param: str
) -> None:
    refused(server.post("/v1/chat/completions", messages=messages), param)
    server.next_is_right()


def test_a_missing_field_is_named(server: LiveServer) -> None:
    refused(server.post("/v1/chat/completions"), "messages")
    refused(server.post("/v1/completions"), "prompt")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'"x"', b"null", b"\xff\xfe", b'{"prompt": "\\ud800"}', b"[" * 100_000, b'{"a":' * 100_000],
)
def test_what_is_no_json_object_is_refused_in_one_sentence(server: LiveServer, content: bytes) -> None:
    error = refused(server.client.post("/v1/completions", content=content), None)
    assert error["code"] == "invalid_json"
    server.next_is_right()


def test_the_names_of_ignored_fields_never_fill_a_header(server: LiveServer) -> None:
    """Node takes 16 KiB of headers in all, many proxies 8 KiB."""
    response = server.chat(**{f"{i}{'😀' * 200}": 1 for i in range(100)})
    named = response.headers["x-firsttoken-ignored-fields"]
    assert len(named) < 2048
    assert [name[:13] for name in named.split(",")] == [f"{i}%F0%9F%98%80"[:13] for i in range(16)]
    assert all(name.endswith("%80") for name in named.split(","))


def test_an_unknown_field_is_ignored_and_named(server: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="firsttoken.server"):
        response = server.chat(foo=1, **{"bar\r\nX-Evil: 1": 2})
    assert response.status_code == 200
    assert response.headers["x-firsttoken-ignored-fields"] == "foo,bar%0D%0AX-Evil%3A%201"
    assert "x-evil" not in response.headers
    assert [record.getMessage() for record in caplog.records if "foo" in record.getMessage()] == [
        "ignored 2 unknown field(s) of a request: foo,bar%0D%0AX-Evil%3A%201"
    ]
    streamed = server.chat(foo=1, stream=True)
    assert streamed.headers["x-firsttoken-ignored-fields"] == "foo"
    assert "x-firsttoken-ignored-fields" not in server.chat().headers
    server.next_is_right()


def test_an_unknown_field_inside_a_message_is_named_with_its_place(server: LiveServer) -> None:
    message = {"role": "user", "content": "Hi", "mood": "good"}
    response = server.post("/v1/chat/completions", messages=[message])
    assert response.headers["x-firsttoken-ignored-fields"] == "messages[0].mood"


def test_strict_fields_refuses_unknown_ones(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, strict_fields=True) as server:
        error = refused(server.chat(foo=1), "foo")
        assert error["message"] == "Unrecognized request argument supplied: foo."
        server.next_is_right()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("functions", [{"name": "f"}]),
        ("reasoning_effort", "high"),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "x", "format": "wav"}),
        ("prediction", {"type": "content", "content": "x"}),
        ("web_search_options", {}),
        ("store", True),
        ("service_tier", "flex"),
        ("verbosity", "low"),
        ("prompt_cache_retention", "24h"),
        ("use_beam_search", True),
        ("detokenize", False),
        ("chat_template", "{{ messages }}"),
        ("stream_options.include_obfuscation", None),
    ],
)
def test_a_known_field_that_is_not_honoured_is_refused_by_name(server: LiveServer, field: str, value: object) -> None:
    if field.startswith("stream_options."):
        refused(server.chat(stream=True, stream_options={"include_obfuscation": True}), field)
    else:
        refused(server.chat(**{field: value}), field)
    server.next_is_right()


def test_the_fields_before_tools_are_refused_with_what_to_use(server: LiveServer) -> None:
    assert "use 'tools'." in refused(server.chat(functions=[{"name": "f"}]), "functions")["message"]
    assert "use 'tool_choice'." in refused(server.chat(function_call={"name": "f"}), "function_call")["message"]


def test_a_suffix_is_refused_and_an_empty_one_is_not(server: LiveServer) -> None:
    refused(server.complete(suffix="end"), "suffix")
    assert server.complete(suffix="").status_code == 200


NEUTRAL: dict[str, Any] = {
    "store": False,
    "service_tier": "auto",
    "prompt_cache_key": "a-conversation",
    "safety_identifier": "u1",
    "user": "u1",
    "metadata": {"a": "b"},
    "tools": [],
    "tool_choice": "none",
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "verbosity": "medium",
    "logit_bias": {},
    "detokenize": True,
    "spaces_between_special_tokens": False,
    "audio": None,
    "web_search_options": None,
    "stream_options": None,
    "max_tokens": None,
    "max_completion_tokens": None,
    "n": None,
    "stop": None,
    "seed": None,
    "temperature": None,
    "top_p": None,
    "logprobs": False,
    "top_logprobs": None,
    "presence_penalty": 0,
    "frequency_penalty": 0.0,
}


def test_openais_fields_at_their_neutral_values_change_nothing(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, strict_fields=True) as server:
        response = server.chat(**NEUTRAL)
        assert response.status_code == 200, response.text
        plain = server.chat()
        assert response.json()["choices"] == plain.json()["choices"]
        first, second = server.backend.submitted
        assert first.sampling == second.sampling
        assert first.prompt_token_ids == second.prompt_token_ids
        server.next_is_right()


def test_tools_that_may_not_be_called_are_left_out(server: LiveServer) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert server.chat(tools=tools, tool_choice="none").status_code == 200
    server.next_is_right()


def test_sampling_fields_reach_the_engine(server: LiveServer) -> None:
    fields: dict[str, Any] = {
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.9,
        "min_p": 0.1,
        "seed": 42,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": -0.3,
        "max_tokens": 9,
        "min_tokens": 2,
        "ignore_eos": True,
    }
    server.chat(**fields, logit_bias={"5": -100}, stop_token_ids=[6], cache_salt="mine")
    request = server.backend.submitted[0]
    assert {name: getattr(request.sampling, name) for name in fields} == fields
    assert request.sampling.logit_bias == {5: -100.0}
    assert request.sampling.stop_token_ids == (6,)
    assert (request.priority, request.cache_salt) == (0, "mine")
    assert request.sampling.stop == ()


def test_the_models_own_defaults_stand_in_for_what_is_not_given(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, defaults={"temperature": 0.7, "top_p": 0.8, "top_k": 20}) as server:
        server.chat()
        server.chat(temperature=0, top_k=-1)
        given, changed = (request.sampling for request in server.backend.submitted)
    assert (given.temperature, given.top_p, given.top_k) == (0.7, 0.8, 20)
    assert (changed.temperature, changed.top_p, changed.top_k) == (0.0, 0.8, 0)


def test_a_priority_is_taken_only_where_the_server_schedules_by_it(server: LiveServer, tokenizer: Tokenizer) -> None:
    for ask in (server.chat, server.complete):
        assert refused(ask(priority=-3), "priority")["code"] == "unsupported_parameter"
        assert ask(priority=0).status_code == 200
    with live_server(tokenizer, scheduling_policy="priority") as generous:
        generous.chat(priority=-3)
        generous.complete(priority=7)
        assert [request.priority for request in generous.backend.submitted] == [-3, 7]


def test_min_tokens_above_max_tokens_is_refused(server: LiveServer) -> None:
    refused(server.chat(min_tokens=5, max_tokens=4), "min_tokens")


def test_no_error_tells_of_paths_or_code(server: LiveServer) -> None:
    bodies: list[dict[str, Any]] = [{"temperature": {}}, {"messages": {"a": [1] * 50}}, {"stop": [{}]}]
    for body in bodies:
        text = server.post("/v1/chat/completions", **body).text
        assert not any(word in text for word in ("Traceback", "/", ".py", "pydantic", "http")), text
        json.loads(text)
