"""`POST /v1/messages` and its counting of tokens: what the model is told, and the object that comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tests.api.live_server import HELLO, LiveServer, live_server
from tests.api.test_responses import CALL, DEEP, prompt_of_chat
from tests.tokenizer.templates import CHATML

from firsttoken.tokenizer import Tokenizer

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "get_weather", "description": "Weather.", "input_schema": SCHEMA}
HI = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def qwen(qwen_with: Callable[[str], Tokenizer]) -> Tokenizer:
    return qwen_with(CHATML)


@pytest.fixture(scope="module")
def shared(qwen: Tokenizer) -> Iterator[LiveServer]:
    with live_server(qwen, max_model_len=2048) as running:
        yield running


@pytest.fixture
def server(shared: LiveServer) -> LiveServer:
    shared.reset()
    return shared


def send(server: LiveServer, messages: Any = HI, /, **body: Any) -> httpx.Response:
    return server.post("/v1/messages", **{"messages": messages, "max_tokens": 500, **body})


def answered(server: LiveServer, messages: Any = HI, /, **body: Any) -> dict[str, Any]:
    response = send(server, messages, **body)
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json()
    return made


def refused(response: httpx.Response, kind: str, status: int = 400) -> str:
    """The sentence of an error in Anthropic's form."""
    assert response.status_code == status, response.text
    error = response.json()
    assert set(error) == {"type", "error", "request_id"}
    assert error["type"] == "error"
    assert error["error"]["type"] == kind
    assert error["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]
    message: str = error["error"]["message"]
    return message


def test_the_answer_has_anthropics_form(server: LiveServer) -> None:
    server.backend.cached_tokens = 3
    made = answered(server, model="tiny")
    prompt = len(server.backend.submitted[-1].prompt_token_ids)
    assert made.pop("id").startswith("msg_")
    assert made == {
        "type": "message",
        "role": "assistant",
        "model": "tiny",
        "content": [{"type": "text", "text": HELLO}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": prompt - 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 3,
            "output_tokens": len(HELLO) + 1,
            "service_tier": "standard",
        },
    }
    server.next_is_right()


def test_a_conversation_is_a_chats(server: LiveServer) -> None:
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Weather?", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "北京"}},
                {"type": "tool_use", "id": "t2", "name": "get_weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "?"}]}
                | {"is_error": 1},
                {"type": "text", "text": "And now?"},
            ],
        },
    ]
    answered(
        server, turns, system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}], tools=[WEATHER]
    )
    told = server.backend.submitted[-1].prompt_token_ids
    calls = [
        {"id": f"t{i}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        for i, arguments in ((1, '{"city": "北京"}'), (2, "{}"))
    ]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be\nbrief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "Let me see.", "reasoning_content": "Hm.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "t1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error:\n?"},
        {"role": "user", "content": "And now?"},
    ]
    function = {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}
    assert told == prompt_of_chat(server, messages, tools=[{"type": "function", "function": function}])


def test_an_assistants_text_at_the_end_is_gone_on_with(server: LiveServer) -> None:
    turns = [*HI, {"role": "assistant", "content": "One, two,\n"}]
    answered(server, turns)
    told = server.vocabulary.tokenizer.decode(server.backend.submitted[-1].prompt_token_ids, skip_special_tokens=False)
    assert told.endswith("<|im_start|>assistant\nOne, two,\n")


def test_a_tool_is_used(server: LiveServer) -> None:
    server.says("<think>\nHm.\n</think>\n\nLet me see.\n" + CALL)
    made = answered(server, tools=[WEATHER], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    thought, text, use = made["content"]
    assert thought == {"type": "thinking", "thinking": "Hm.", "signature": ""}
    assert text == {"type": "text", "text": "Let me see."}
    assert use.pop("id")
    assert use == {"type": "tool_use", "name": "get_weather", "input": {"city": "北京"}}
    assert made["stop_reason"] == "tool_use"
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}
    server.says(HELLO)
    turns = [*HI, {"role": "assistant", "content": [text, {**use, "id": "t1"}]}, {"role": "user", "content": [result]}]
    assert answered(server, turns, tools=[WEATHER])["stop_reason"] == "end_turn"


def test_no_tool_is_offered_where_none_may_be_used(server: LiveServer) -> None:
    answered(server, tools=[WEATHER], tool_choice={"type": "none"})
    told = server.vocabulary.tokenizer.decode(server.backend.submitted[-1].prompt_token_ids)
    assert "get_weather" not in told


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_use_that_must_come_is_enforced_as_a_chats_call(server: LiveServer, choice: dict[str, str]) -> None:
    answered(server, tools=[WEATHER], tool_choice={**choice, "disable_parallel_tool_use": True})
    grammar = server.backend.submitted[-1].sampling.grammar
    function = {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}
    named: Any = {"type": "function", "function": {"name": "get_weather"}} if "name" in choice else "required"
    tools = [{"type": "function", "function": function}]
    prompt_of_chat(server, HI, tools=tools, tool_choice=named, parallel_tool_calls=False)
    assert grammar is not None
    assert grammar == server.backend.submitted[-1].sampling.grammar


def test_the_reason_of_the_end_is_told(server: LiveServer) -> None:
    made = answered(server, stop_sequences=["xx", "lo"])
    assert made["content"] == [{"type": "text", "text": "Hel"}]
    assert (made["stop_reason"], made["stop_sequence"]) == ("stop_sequence", "lo")
    assert answered(server, max_tokens=3)["stop_reason"] == "max_tokens"
    server.says("x" * 4000)
    made = answered(server, max_tokens=1_000_000)
    assert made["stop_reason"] == "model_context_window_exceeded"
    server.says("")
    assert answered(server)["content"] == []


def test_the_form_of_the_text_is_a_chats_response_format(server: LiveServer) -> None:
    answered(server, output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
    grammar = server.backend.submitted[-1].sampling.grammar
    named = {"name": "answer", "schema": SCHEMA, "strict": True}
    prompt_of_chat(server, HI, response_format={"type": "json_schema", "json_schema": named})
    assert grammar is not None
    assert grammar == server.backend.submitted[-1].sampling.grammar


def test_sampling_is_a_chats(server: LiveServer) -> None:
    answered(server, temperature=0.5, top_p=0.9, top_k=7, seed=3, cache_salt="s", max_tokens=9)
    request = server.backend.submitted[-1]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.9, 7, 3)
    assert (sampling.max_tokens, request.cache_salt) == (9, "s")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image"),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}, "document"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use"}]}]}, "tool_use"),
        ({"messages": [{"role": "user", "content": [{"type": []}]}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]}, "name"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]}, "content"),
        (
            {
                "messages": [
                    *HI,
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
                ]
            },
            "messages[1].content",
        ),
        ({"system": [{"type": "image"}]}, "system"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
        ({"tools": [WEATHER | {"defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking.budget_tokens"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json_schema", "schema": DEEP}}}, "output_config.format.schema"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop": ["x"]}, "stop"),
        ({"n": 2}, "n"),
        ({"temperature": -1}, "temperature"),
        ({"top_k": -2}, "top_k"),
        ({"mcp_servers": [{"name": "x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"speed": "fast"}, "speed"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(server: LiveServer, body: dict[str, Any], named: str) -> None:
    message = refused(send(server, **body), "invalid_request_error")
    assert named in message
    assert ".function" not in message
    assert not server.backend.submitted


def test_values_that_change_nothing_are_accepted(server: LiveServer) -> None:
    neutral = {
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "thinking": {"type": "disabled"},
        "cache_control": {"type": "ephemeral"},
        "container": None,
        "output_config": {},
        "tools": [WEATHER | {"cache_control": {"type": "ephemeral"}, "type": "custom"}],
    }
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "x"}
    body = {"messages": HI, "max_tokens": 5, **neutral}
    response = server.client.post("/v1/messages", json=body, headers=headers)
    assert response.status_code == 200, response.text
    assert "x-firsttoken-ignored-fields" not in response.headers


def test_thinking_is_asked_of_a_model_that_thinks_alone(server: LiveServer, tokenizer: Tokenizer) -> None:
    assert send(server, thinking={"type": "adaptive"}).status_code == 200
    with live_server(tokenizer) as plain:
        response = plain.post("/v1/messages", messages=HI, max_tokens=5, thinking={"type": "adaptive"})
        assert "does not think" in refused(response, "invalid_request_error")
        assert plain.post("/v1/messages", messages=HI, max_tokens=5, thinking={"type": "disabled"}).is_success


def test_unknown_fields_are_told_of(server: LiveServer) -> None:
    response = send(server, [{"role": "user", "content": "Hi", "bar": 1}], foo=1)
    assert response.headers["x-firsttoken-ignored-fields"] == "foo,messages[0].bar"


def test_tokens_are_counted_as_the_message_would_have_them(server: LiveServer) -> None:
    prompt = {"messages": HI, "system": "Be brief.", "tools": [WEATHER]}
    answered(server, **prompt)
    response = server.post("/v1/messages/count_tokens", model="tiny", **prompt)
    assert response.json() == {"input_tokens": len(server.backend.submitted[-1].prompt_token_ids)}
    long = [{"role": "user", "content": "long " * 5000}]
    assert server.post("/v1/messages/count_tokens", messages=long).json()["input_tokens"] > 5000
    longest = [{"role": "user", "content": "a b " * 200_000}]
    response = server.post("/v1/messages/count_tokens", messages=longest)
    assert "not counted at once" in refused(response, "invalid_request_error")
    assert "messages" in refused(server.post("/v1/messages/count_tokens"), "invalid_request_error")


def test_errors_have_anthropics_form_wherever_they_come_from(server: LiveServer) -> None:
    refused(send(server, model="nobody"), "not_found_error", 404)
    refused(server.client.get("/v1/messages"), "invalid_request_error", 405)
    refused(server.client.post("/v1/messages/nothing"), "not_found_error", 404)
    refused(server.client.post("/v1/messages", content=b"{"), "invalid_request_error")
    assert refused(send(server, [{"role": "user", "content": "x " * 5000}]), "invalid_request_error").startswith(
        "prompt is too long: "
    )
    server.backend.fails_after = 2
    assert refused(send(server), "api_error", 500) == "The step failed."
    server.backend.fails_after = None
    server.backend.capacity = 0
    response = send(server)
    refused(response, "rate_limit_error", 429)
    assert response.headers["retry-after"]
    server.backend.state = "draining"
    refused(send(server), "overloaded_error", 503)


def test_what_is_refused_before_any_route_has_the_same_form(qwen: Tokenizer) -> None:
    good = "https://good.example"
    with live_server(qwen, allowed_origins=(good,)) as server:
        foreign = {"origin": "https://bad.example", "access-control-request-method": "POST"}
        refused(server.client.options("/v1/messages", headers=foreign), "permission_error", 403)
        strange = {"origin": good, "access-control-request-method": "PATCH"}
        message = refused(server.client.options("/v1/messages", headers=strange), "invalid_request_error")
        assert message == "Disallowed CORS method"


def test_either_header_may_carry_the_key(qwen: Tokenizer) -> None:
    with live_server(qwen, api_keys=("secret", "other"), max_body_bytes=1000) as server:
        body = {"messages": HI, "max_tokens": 5}

        def ask(*headers: tuple[str, str]) -> httpx.Response:
            return server.client.post("/v1/messages", json=body, headers=list(headers))

        assert ask(("x-api-key", "secret")).status_code == 200
        assert ask(("Authorization", "Bearer other")).status_code == 200
        refused(ask(), "authentication_error", 401)
        refused(ask(("x-api-key", "Secret")), "authentication_error", 401)
        refused(ask(("x-api-key", "")), "authentication_error", 401)
        refused(ask(("x-api-key", "secret"), ("x-api-key", "secret")), "authentication_error", 401)
        body["messages"] = [{"role": "user", "content": "a" * 2000}]
        refused(ask(("x-api-key", "secret")), "request_too_large", 413)
