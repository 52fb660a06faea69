"""`POST /v1/responses`: what the model is told, and the object that comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tests.api.live_server import HELLO, LiveServer, live_server, refused
from tests.tokenizer.templates import CHATML

from firsttoken.tokenizer import Tokenizer

WEATHER = {"type": "function", "name": "get_weather", "description": "Weather.", "parameters": {"type": "object"}}
ADD = {"type": "function", "name": "add", "parameters": None, "strict": None}
MESSAGES = [{"role": "user", "content": "Hi"}]
DEEP: Any = {"type": "object"}
for _ in range(90):
    DEEP = {"type": "array", "items": DEEP}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "北京"}}\n</tool_call>'


@pytest.fixture(scope="module")
def shared(qwen_with: Callable[[str], Tokenizer]) -> Iterator[LiveServer]:
    with live_server(qwen_with(CHATML), max_model_len=2048) as running:
        yield running


@pytest.fixture
def server(shared: LiveServer) -> LiveServer:
    shared.reset()
    return shared


def respond(server: LiveServer, input: Any = "Hi", /, **body: Any) -> httpx.Response:
    return server.post("/v1/responses", input=input, **body)


def answered(server: LiveServer, input: Any = "Hi", /, **body: Any) -> dict[str, Any]:
    response = respond(server, input, **body)
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json()
    return made


def prompt_of_chat(server: LiveServer, messages: list[dict[str, Any]], **body: Any) -> list[int]:
    response = server.post("/v1/chat/completions", messages=messages, **body)
    assert response.status_code == 200, response.text
    return server.backend.submitted[-1].prompt_token_ids


def test_the_answer_has_openais_form(server: LiveServer) -> None:
    made = answered(server, model="tiny", instructions="Be brief.", metadata={"k": "v"}, max_output_tokens=50)
    (item,) = made["output"]
    assert made["id"].startswith("resp_")
    assert (made["object"], made["status"], made["store"]) == ("response", "completed", False)
    assert item["id"].startswith("msg_")
    assert item["content"] == [{"type": "output_text", "text": HELLO, "annotations": [], "logprobs": []}]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert made["instructions"] == "Be brief."
    assert made["metadata"] == {"k": "v"}
    assert made["max_output_tokens"] == 50
    assert made["error"] is made["incomplete_details"] is None
    server.next_is_right()


def test_usage_has_details(server: LiveServer) -> None:
    server.backend.cached_tokens = 3
    usage = answered(server)["usage"]
    assert usage["input_tokens_details"]["cached_tokens"] == 3
    assert usage["input_tokens"] == len(server.backend.submitted[-1].prompt_token_ids)
    assert usage["output_tokens"] == len(HELLO) + 1
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_usage_counts_the_tokens_of_thoughts_as_a_chats(server: LiveServer) -> None:
    server.says("<think>\nHm.\n</think>\n\nSo.")
    chat = server.chat("Hi").json()["usage"]
    assert chat["completion_tokens_details"]["reasoning_tokens"] > 0
    assert answered(server)["usage"]["output_tokens_details"] == chat["completion_tokens_details"]


def test_a_text_is_the_users_message_and_instructions_the_systems(server: LiveServer) -> None:
    answered(server, "What now?", instructions="Be brief.")
    told = server.backend.submitted[-1].prompt_token_ids
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What now?"}]
    assert told == prompt_of_chat(server, messages)


def test_items_are_the_messages_of_a_chat(server: LiveServer) -> None:
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "A"}'},
        {"type": "function_call", "call_id": "c2", "name": "get_weather", "arguments": '{"city": "B"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "rain"}]},
    ]
    answered(server, items, tools=[WEATHER])
    told = server.backend.submitted[-1].prompt_token_ids
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": "get_weather", "arguments": f'{{"city": "{city}"}}'}}
        for i, city in ((1, "A"), (2, "B"))
    ]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "Let me see.", "reasoning_content": "Hm.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "c2", "content": "rain"},
    ]
    function = {name: WEATHER[name] for name in ("name", "description", "parameters")}
    assert told == prompt_of_chat(server, messages, tools=[{"type": "function", "function": function}])
    assert "Hm." in server.vocabulary.tokenizer.decode(told)


def test_an_answers_items_can_be_sent_back(server: LiveServer) -> None:
    server.says("<think>\nHm.\n</think>\n\nLet me see.\n" + CALL)
    output = answered(server, tools=[WEATHER])["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
    result = {"type": "function_call_output", "call_id": output[2]["call_id"], "output": "sunny"}
    server.says(HELLO)
    made = answered(server, [{"role": "user", "content": "Hi"}, *output, result], tools=[WEATHER])
    assert made["output"][0]["content"][0]["text"] == HELLO


def test_a_call_is_an_item(server: LiveServer) -> None:
    server.says(CALL)
    made = answered(server, tools=[WEATHER, ADD], tool_choice="auto", parallel_tool_calls=False)
    (item,) = made["output"]
    assert item["type"] == "function_call"
    assert item["id"].startswith("fc_")
    assert item["call_id"].startswith("call_")
    assert (item["name"], item["arguments"], item["status"]) == ("get_weather", '{"city": "北京"}', "completed")
    assert made["status"] == "completed"
    assert [tool["name"] for tool in made["tools"]] == ["get_weather", "add"]
    assert made["parallel_tool_calls"] is False
    server.next_is_right()


def test_a_call_that_was_cut_is_no_call(server: LiveServer) -> None:
    server.says(CALL)
    made = answered(server, tools=[WEATHER], max_output_tokens=len(CALL.encode()) - 20)
    (item,) = made["output"]
    assert item["type"] == "message"
    assert item["status"] == made["status"] == "incomplete"
    assert made["incomplete_details"] == {"reason": "max_output_tokens"}


def test_allowed_tools_are_the_only_ones_offered(server: LiveServer) -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]}
    made = answered(server, tools=[WEATHER, ADD], tool_choice=choice)
    told = server.vocabulary.tokenizer.decode(server.backend.submitted[-1].prompt_token_ids)
    assert "add" in told
    assert "get_weather" not in told
    assert made["tool_choice"] == choice
    assert len(made["tools"]) == 2


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_a_call_that_must_come_is_enforced_as_a_chats(server: LiveServer, choice: Any) -> None:
    tools: list[dict[str, Any]] = [{**WEATHER, "strict": False}, ADD]
    answered(server, tools=tools, tool_choice=choice, parallel_tool_calls=False)
    grammar = server.backend.submitted[-1].sampling.grammar
    nested = [{"type": "function", "function": {key: tool[key] for key in tool.keys() - {"type"}}} for tool in tools]
    named = choice if isinstance(choice, str) else {"type": "function", "function": {"name": "get_weather"}}
    prompt_of_chat(server, MESSAGES, tools=nested, tool_choice=named, parallel_tool_calls=False)
    assert grammar is not None
    assert grammar == server.backend.submitted[-1].sampling.grammar


@pytest.mark.parametrize("body", [{"top_logprobs": 2}, {"include": ["message.output_text.logprobs"]}])
def test_logprobs_are_shown_where_they_are_asked_for(server: LiveServer, body: dict[str, Any]) -> None:
    (item,) = answered(server, **body)["output"]
    entries = item["content"][0]["logprobs"]
    assert "".join(entry["token"] for entry in entries) == HELLO
    assert all(len(entry["top_logprobs"]) == body.get("top_logprobs", 0) for entry in entries)


def test_the_form_of_the_text_is_a_chats_response_format(server: LiveServer) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    form = {"type": "json_schema", "name": "place", "schema": schema, "strict": True}
    made = answered(server, text={"format": form})
    grammar = server.backend.submitted[-1].sampling.grammar
    named = {key: value for key, value in form.items() if key != "type"}
    prompt_of_chat(server, MESSAGES, response_format={"type": "json_schema", "json_schema": named})
    assert grammar is not None
    assert grammar == server.backend.submitted[-1].sampling.grammar
    assert made["text"] == {"format": form, "verbosity": "medium"}
    answered(server, text={"format": {"type": "json_object"}})
    grammar = server.backend.submitted[-1].sampling.grammar
    assert grammar is not None
    assert grammar.kind == "json_object"


def test_sampling_is_a_chats_and_is_said_back(server: LiveServer) -> None:
    made = answered(server, temperature=0.5, top_p=0.9, top_k=7, seed=3, stop=["lo"], max_output_tokens=9)
    sampling = server.backend.submitted[-1].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.9, 7, 3)
    assert sampling.max_tokens == 9
    assert (made["temperature"], made["top_p"]) == (0.5, 0.9)
    assert made["output"][0]["content"][0]["text"] == "Hel"


def test_an_answer_ends_at_its_length_or_at_the_contexts_end(server: LiveServer) -> None:
    made = answered(server, max_output_tokens=5)
    assert made["output"][0]["content"][0]["text"] == "Hello"
    assert made["output"][0]["status"] == made["status"] == "incomplete"
    assert made["incomplete_details"] == {"reason": "max_output_tokens"}
    assert made["completed_at"] is None
    assert answered(server, max_output_tokens=100_000)["status"] == "completed"


def test_an_empty_answer_is_an_empty_message(server: LiveServer) -> None:
    server.says("")
    (item,) = answered(server)["output"]
    assert item["content"][0]["text"] == ""


def test_what_is_too_long_is_refused_or_cut_as_asked(server: LiveServer) -> None:
    items = [{"role": "user", "content": "long " * 400}, {"role": "assistant", "content": "x " * 2000}]
    items.append({"role": "user", "content": "The last question?"})
    error = refused(respond(server, items), "input")
    assert error["code"] == "context_length_exceeded"
    response = respond(server, items, instructions="Be brief.", truncation="auto")
    assert response.status_code == 200
    assert response.json()["truncation"] == "auto"
    assert int(response.headers["x-firsttoken-truncated-tokens"]) > 0
    told = server.vocabulary.tokenizer.decode(server.backend.submitted[-1].prompt_token_ids)
    assert "Be brief." in told
    assert "The last question?" in told
    server.next_is_right()


def test_a_request_says_whether_it_may_be_cut_whatever_the_server_does(qwen_with: Callable[[str], Tokenizer]) -> None:
    with live_server(qwen_with(CHATML), max_model_len=256, truncate="left") as server:
        refused(respond(server, "long " * 400, truncation="disabled"), "input")
        assert answered(server, "long " * 400)["truncation"] == "auto"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"n": 2}, "n"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [WEATHER, {"type": "mcp", "server_label": "x"}]}, "tools[1].type"),
        ({"tools": [{"type": "function", "name": ""}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
        ({"tools": [WEATHER | {"defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.name"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": DEEP}}}, "text.format.schema"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"logprobs": True}, "logprobs"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"include": ["everything"]}, "include[0]"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"min_tokens": 9, "max_output_tokens": 3}, "min_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_logprobs": 1_000_000}, "top_logprobs"),
        ({"truncation": "left"}, "truncation"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"model": "nobody"}, "model"),
        ({"stop": [""]}, "stop"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": []}]}]}, "input[0].content"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input[0].call_id"),
    ],
)
def test_what_is_not_honoured_is_refused_by_the_clients_own_name(
    server: LiveServer, body: dict[str, Any], param: str
) -> None:
    response = server.post("/v1/responses", **{"input": "Hi", **body})
    error = refused(response, param, 404 if param == "model" else 400)
    assert "messages" not in error["message"]
    assert not server.backend.submitted


def test_values_that_change_nothing_are_accepted(server: LiveServer) -> None:
    neutral = {
        "store": False,
        "background": False,
        "conversation": None,
        "service_tier": "auto",
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "p",
        "include": ["reasoning.encrypted_content", "file_search_call.results"],
        "reasoning": {"effort": None, "summary": "auto"},
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "max_tool_calls": 5,
        "stream_options": {"include_obfuscation": False},
        "truncation": "disabled",
        "metadata": None,
    }
    response = respond(server, **neutral)
    assert response.status_code == 200, response.text
    assert "x-firsttoken-ignored-fields" not in response.headers
    assert response.json()["user"] == "u"


def test_unknown_fields_are_told_of(server: LiveServer) -> None:
    response = respond(server, [{"role": "user", "content": "Hi", "bar": 1}], foo=1)
    assert response.headers["x-firsttoken-ignored-fields"] == "foo,input[0].bar"


def test_strict_servers_refuse_what_nobody_knows(qwen_with: Callable[[str], Tokenizer]) -> None:
    with live_server(qwen_with(CHATML), strict_fields=True) as server:
        refused(respond(server, foo=1), "foo")
        refused(respond(server, [{"role": "user", "content": "Hi", "bar": 1}]), "input[0].bar")
        assert respond(server, temperature=0).status_code == 200


def test_no_response_is_ever_found(server: LiveServer) -> None:
    made = answered(server)
    for method in ("GET", "DELETE"):
        response = server.client.request(method, f"/v1/responses/{made['id']}")
        assert refused(response, None, 404)["code"] == "not_found"


def test_an_engine_failure_is_a_500(server: LiveServer) -> None:
    server.backend.fails_after = 2
    assert refused(respond(server), None, 500)["message"] == "The step failed."
    server.backend.fails_after = None
    server.next_is_right()
