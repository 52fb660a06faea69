"""Tools over HTTP: what the model is told, and what becomes of what it answers.

Qwen3's vocabulary and a template in Qwen3's form; every answer's tokens are the test's own, one a byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.api.live_server import HELLO, LiveServer, live_server, refused
from tests.tokenizer.templates import CHATML

from firsttoken.tokenizer import Tokenizer

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ADD = {"type": "function", "function": {"name": "add"}}
TOOLS = [WEATHER, ADD]
STRINGS = {"type": "function", "function": {"name": "say", "parameters": {"type": "string"}}}
ARGUMENTS = '{"city": "北京 🙂", "when": {"day": [1, 2], "exact": "</tool_call>"}}'
CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


@pytest.fixture
def server(qwen_server: LiveServer) -> LiveServer:
    return qwen_server


def told(server: LiveServer) -> str:
    """The prompt of the last request."""
    ids = server.backend.submitted[-1].prompt_token_ids
    return server.vocabulary.tokenizer.decode(ids, skip_special_tokens=False)


def answered(server: LiveServer, **body: Any) -> dict[str, Any]:
    response = server.chat(**{"tools": TOOLS, **body})
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


def streamed(server: LiveServer, index: int = 0, **body: Any) -> dict[str, Any]:
    """The message and the end that a stream's deltas join to, as OpenAI's clients join them."""
    message: dict[str, Any] = {"content": None, "tool_calls": []}
    reasons = []
    for chunk in server.chat_stream(**{"tools": TOOLS, **body}):
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            delta = choice["delta"]
            if delta.get("content") is not None:
                message["content"] = (message["content"] or "") + delta["content"]
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": call["id"], "type": call["type"], "function": call["function"]})
                else:
                    assert set(call) == {"index", "function"}
                    message["tool_calls"][-1]["function"]["arguments"] += call["function"]["arguments"]
            if choice["finish_reason"] is not None:
                reasons.append(choice["finish_reason"])
    assert len(reasons) == 1
    return {"message": message, "finish_reason": reasons[0]}


def test_the_models_own_template_prints_the_tools(server: LiveServer) -> None:
    answered(server)
    expected = {**ADD, "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    for tool in (WEATHER, expected):
        assert "\n" + json.dumps(tool) in told(server)
    server.next_is_right()


def test_tools_are_printed_in_one_order_and_strict_is_not_printed(server: LiveServer) -> None:
    answered(server)
    usual = told(server)
    function = dict(reversed(list(WEATHER["function"].items()))) | {"strict": False}  # type: ignore[attr-defined]
    answered(server, tools=[{"function": function}, ADD])
    assert told(server) == usual


def test_tokenize_counts_tools_as_the_chat_does(server: LiveServer) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    for choice in ("auto", "none"):
        body = {"messages": messages, "tools": TOOLS, "tool_choice": choice}
        assert server.post("/v1/chat/completions", **body).status_code == 200
        ids = server.backend.submitted[-1].prompt_token_ids
        assert server.post("/tokenize", **body).json()["tokens"] == ids


def test_where_none_may_be_called_none_is_told_of_and_none_is_found(server: LiveServer) -> None:
    server.says(CALL)
    choice = answered(server, tool_choice="none")
    assert "get_weather" not in told(server)
    assert choice["message"]["content"] == CALL
    assert choice["finish_reason"] == "stop"
    server.next_is_right()


def test_a_call_is_an_answer_without_content(server: LiveServer) -> None:
    server.says("\n" + CALL)
    choice = answered(server)
    (call,) = choice["message"].pop("tool_calls")
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None}
    assert choice["finish_reason"] == "tool_calls"
    assert call["id"].startswith("call_")
    assert call["type"] == "function"
    assert call["function"] == {"name": "get_weather", "arguments": ARGUMENTS}
    server.next_is_right()


def test_a_streams_argument_deltas_join_to_the_unstreamed_call(server: LiveServer) -> None:
    """Row 5: nested arguments; every character of more than one byte is cut between tokens."""
    server.says("Let me see.\n" + CALL + "\n" + OTHER)
    whole, joined = answered(server), streamed(server)
    for choice in (whole, joined):
        assert choice["message"]["content"] == "Let me see."
        assert choice["finish_reason"] == "tool_calls"
        functions = [call["function"] for call in choice["message"]["tool_calls"]]
        assert functions == [
            {"name": "get_weather", "arguments": ARGUMENTS},
            {"name": "add", "arguments": '{"a": 1}'},
        ]
        assert len({call["id"] for call in choice["message"]["tool_calls"]}) == 2
    server.next_is_right()


def test_a_stream_opens_with_the_role_and_tells_a_call_while_it_is_written(server: LiveServer) -> None:
    server.says(CALL)
    server.backend.pace = 0.001  # a chunk a token
    chunks = server.chat_stream(tools=TOOLS)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    first = chunks[1]["choices"][0]["delta"]["tool_calls"][0]
    assert first["function"] == {"name": "get_weather", "arguments": ""}
    assert sum("tool_calls" in chunk["choices"][0]["delta"] for chunk in chunks) > 30
    assert chunks[-1]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "tool_calls"}


def test_the_models_own_tags_are_tokens_and_read_the_same(server: LiveServer) -> None:
    tokenizer = server.vocabulary.tokenizer
    ids = tokenizer.encode(CALL, add_special_tokens=False)
    assert server.vocabulary.special("<tool_call>") in ids
    server.backend.script = lambda _request, _index: ids
    assert answered(server)["message"]["tool_calls"][0]["function"]["arguments"] == ARGUMENTS
    assert streamed(server)["message"]["tool_calls"][0]["function"]["arguments"] == ARGUMENTS


def test_a_call_cut_by_the_length_is_no_call(server: LiveServer) -> None:
    """Row 6."""
    server.says("So:\n" + CALL)
    tokens = 4 + CALL.encode().index(b"day")
    whole = answered(server, max_tokens=tokens)
    assert whole["finish_reason"] == "length"
    assert "tool_calls" not in whole["message"]
    assert whole["message"]["content"] == ("So:\n" + CALL)[: len("So:\n") + CALL.index("day")]
    joined = streamed(server, max_tokens=tokens)
    assert joined["finish_reason"] == "length"
    (call,) = joined["message"]["tool_calls"]
    assert ARGUMENTS.startswith(call["function"]["arguments"])
    assert call["function"]["arguments"] != ARGUMENTS
    server.next_is_right()


@pytest.mark.parametrize(
    "said",
    [
        '<tool_call>\n{"name": "rm", "arguments": {}}\n</tool_call>',
        "<tool_call>\nget_weather(city=1)\n</tool_call>",
        '<tool_call>\n{"name": "add", "arguments": 3}\n</tool_call>',
        "<tool_call>",
        '<tool_call>\n{"name"',
    ],
)
def test_what_is_no_call_of_an_offered_tool_comes_back_as_text(server: LiveServer, said: str) -> None:
    server.says(said)
    for choice in (answered(server), streamed(server)):
        assert choice["message"]["content"] == said
        assert not choice["message"].get("tool_calls")
        assert choice["finish_reason"] == "stop"
    server.next_is_right()


def test_a_stream_does_not_end_as_called_where_the_arguments_turned_out_wrong(server: LiveServer) -> None:
    said = '<tool_call>\n{"name": "add", "arguments": {"a": tru}}\n</tool_call>'
    server.says(said)
    assert answered(server)["message"]["content"] == said
    assert streamed(server)["finish_reason"] == "stop"
    server.next_is_right()


def test_one_call_at_a_time_where_they_may_not_be_parallel(server: LiveServer) -> None:
    server.says(CALL + "\n" + OTHER)
    for read in (answered, streamed):
        choice = read(server, parallel_tool_calls=False)
        assert len(choice["message"]["tool_calls"]) == 1
        assert choice["finish_reason"] == "tool_calls"
        assert len(server.backend.stopped) > 0
        server.backend.stopped.clear()
    response = server.chat(tools=TOOLS, parallel_tool_calls=False)
    tokens = len(CALL.encode()) - len("\n</tool_call>")
    assert response.json()["usage"]["completion_tokens"] == tokens, "the engine is told at the call's end"
    server.next_is_right()


def test_a_stop_string_is_found_in_text_and_calls_alike(server: LiveServer) -> None:
    server.says("Look: here\n" + CALL)
    before = answered(server, stop="here")
    assert before["message"]["content"] == "Look: "
    assert before["finish_reason"] == "stop"
    behind = streamed(server, stop=["</tool_call>\n", "nothing"])
    assert behind["finish_reason"] == "tool_calls"
    inside = answered(server, stop="exact")
    assert inside["finish_reason"] == "stop"
    assert inside["message"]["content"].endswith('"day": [1, 2], "')
    server.next_is_right()


def test_every_answer_of_several_has_its_own_calls(server: LiveServer) -> None:
    server.backend.script = lambda _request, index: server.vocabulary.of([CALL, "No.", OTHER][index])
    response = server.chat(tools=TOOLS, n=3).json()
    assert [choice["finish_reason"] for choice in response["choices"]] == ["tool_calls", "stop", "tool_calls"]
    assert response["usage"]["completion_tokens"] == len((CALL + "No." + OTHER).encode()) + 3
    names = []
    for index in range(3):
        calls = streamed(server, index, n=3)["message"]["tool_calls"]
        names.append([(call["function"]["name"], call["function"]["arguments"]) for call in calls])
    assert names == [[("get_weather", ARGUMENTS)], [], [("add", '{"a": 1}')]]
    server.next_is_right()


def test_logprobs_are_those_of_all_that_the_model_wrote(server: LiveServer) -> None:
    said = "So:\n" + CALL
    server.says(said)
    whole = answered(server, logprobs=True)["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in whole) == said.encode()
    chunks = server.chat_stream(tools=TOOLS, logprobs=True)
    entries = [
        entry
        for chunk in chunks
        if chunk["choices"][0]["logprobs"]
        for entry in chunk["choices"][0]["logprobs"]["content"]
    ]
    assert entries == whole
    server.next_is_right()


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("tools[0].type", {"tools": [{"type": "web_search"}]}),
        ("tools[0].function", {"tools": [{"type": "function"}]}),
        ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": 'a"b'}}]}),
        ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": ""}}]}),
        ("tools[0].function.parameters", {"tools": [{"type": "function", "function": {"name": "a", "parameters": 1}}]}),
        ("tools[1].function.name", {"tools": [ADD, ADD]}),
        ("tools", {"tools": [ADD] * 129}),
        ("tools", {"tools": "add"}),
        ("tool_choice", {"tools": TOOLS, "tool_choice": "maybe"}),
        ("tool_choice", {"tools": TOOLS, "tool_choice": {"type": "function"}}),
        ("tool_choice", {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "rm"}}}),
        ("tool_choice", {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}),
        ("tools[0].function.parameters", {"tools": [STRINGS]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tool_choice": {"type": "function", "function": {"name": "add"}}}),
        ("functions", {"functions": [{"name": "add"}]}),
        ("function_call", {"function_call": {"name": "add"}}),
    ],
)
def test_what_cannot_be_offered_or_chosen_is_refused_by_name(
    server: LiveServer, field: str, body: dict[str, Any]
) -> None:
    refused(server.chat(**body), field)
    server.next_is_right()


def test_a_template_without_tools_refuses_them_in_one_sentence(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer) as plain:
        for path in ("/v1/chat/completions", "/tokenize"):
            error = refused(plain.post(path, messages=[{"role": "user", "content": "Hi"}], tools=TOOLS), "tools")
            assert "chat template knows no tools" in error["message"]
        plain.next_is_right()


def grammar_of(server: LiveServer) -> str | None:
    """The one that the last answer had to keep to."""
    grammar = server.backend.submitted[-1].sampling.grammar
    return None if grammar is None else grammar.source


def test_an_answer_is_kept_to_a_grammar_where_a_call_must_come_or_a_tool_is_strict(server: LiveServer) -> None:
    strict = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}  # type: ignore[dict-item]
    answered(server)
    assert grammar_of(server) is None
    answered(server, tool_choice="required")
    required = grammar_of(server) or ""
    assert {"get_weather", "add"} <= set(required.replace("\\", "").split('"'))
    answered(server, tool_choice={"type": "function", "function": {"name": "add"}})
    named = grammar_of(server) or ""
    assert "get_weather" not in named
    assert "get_weather" in told(server), "the prompt is the same, whatever is chosen"
    assert named.startswith("start: (<think> thoughts GAP )? call\n")
    answered(server, tools=[strict, ADD])
    assert "call* TEXT" in (grammar_of(server) or "")
    answered(server, tools=[strict, ADD], parallel_tool_calls=False)
    assert "call? TEXT" in (grammar_of(server) or "")
    answered(server, tools=[strict, ADD], tool_choice="none")
    assert grammar_of(server) is None
    server.next_is_right()


def test_an_answer_may_be_a_call_or_a_structured_one(server: LiveServer) -> None:
    form = {"type": "json_object"}
    server.says('{"a": 1}')
    choice = answered(server, response_format=form)
    assert choice["message"]["content"] == '{"a": 1}'
    assert choice["finish_reason"] == "stop"
    grammar = server.backend.submitted[-1].sampling.grammar
    assert grammar is not None
    assert grammar.kind == "json_object"
    assert "@answer | call" in grammar.around
    server.says(CALL)
    assert answered(server, response_format=form)["finish_reason"] == "tool_calls"
    assert answered(server, response_format=form, tool_choice="required")["finish_reason"] == "tool_calls"
    assert "@answer" not in (grammar_of(server) or "")
    server.next_is_right()


def test_schemas_that_are_enforced_are_bounded(server: LiveServer) -> None:
    def tool(schema: Any) -> dict[str, Any]:
        return {"type": "function", "function": {"name": "deep", "parameters": schema}}

    deep: dict[str, Any] = {"type": "object"}
    for _ in range(35):
        deep = {"type": "object", "properties": {"a": deep}}
    for schema in (deep, {"type": "object", "description": "x" * 200_000}):
        body = {"tools": [ADD, tool(schema)], "truncate_prompt_tokens": 100}
        refused(server.chat(**body, tool_choice="required"), "tools[1].function.parameters")
    many = [tool({"description": "x" * 10_000}) for _ in range(20)]
    for place, each in enumerate(many):
        each["function"]["name"] = f"tool_{place}"
    refused(server.chat(tools=many, tool_choice="required", truncate_prompt_tokens=100), "tools")
    server.next_is_right()


def test_a_named_function_is_called_and_no_other(server: LiveServer) -> None:
    server.says(OTHER + "\n" + CALL)
    choice = answered(server, tool_choice={"type": "function", "function": {"name": "add"}})
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["add"]
    assert choice["finish_reason"] == "tool_calls"
    server.next_is_right()


def test_a_prompt_that_is_cut_in_its_middle_keeps_the_tools(qwen_with: Callable[[str], Tokenizer]) -> None:
    turns = [{"role": role, "content": f"{i} " + "x " * 150} for i in range(6) for role in ("user", "assistant")]
    with live_server(qwen_with(CHATML), max_model_len=512, truncate="middle") as cutting:
        body = {"messages": [*turns, {"role": "user", "content": "Now?"}], "tools": TOOLS, "max_tokens": 9}
        assert cutting.post("/v1/chat/completions", **body).headers["X-Firsttoken-Truncated-Tokens"]
        prompt = told(cutting)
        assert prompt.startswith("<|im_start|>system\nFunctions:")
        assert json.dumps(WEATHER) in prompt
        assert prompt.endswith("<|im_start|>user\nNow?<|im_end|>\n<|im_start|>assistant\n")
        assert "<|im_start|>user\n0" not in prompt
        cutting.next_is_right()


UNKNOWN = CHATML.replace('"arguments": ', "arguments=")


def test_a_form_of_calls_that_is_not_known_is_refused_unless_a_flag_names_it(
    qwen_with: Callable[[str], Tokenizer],
) -> None:
    with live_server(qwen_with(UNKNOWN), max_model_len=2048) as unknown:
        error = refused(unknown.chat(tools=TOOLS), "tools")
        assert "--tool-call-parser" in error["message"]
        unknown.next_is_right()
    with live_server(qwen_with(UNKNOWN), max_model_len=2048, tool_call_parser="llama3_json") as named:
        named.says('{"name": "add", "parameters": {"a": 1}}; {"name": "add", "parameters": {"a": 2}}')
        calls = named.chat(tools=TOOLS).json()["choices"][0]["message"]["tool_calls"]
        assert [call["function"]["arguments"] for call in calls] == ['{"a": 1}', '{"a": 2}']
        refused(named.chat(tools=TOOLS, response_format={"type": "json_object"}), "tools")
        named.next_is_right()


def test_text_with_tools_offered_is_the_same_text(server: LiveServer) -> None:
    for said in (HELLO, "  two\n\nlines \n", "a < b <tool", ""):
        server.says(said)
        assert answered(server)["message"]["content"] == said
        assert (streamed(server)["message"]["content"] or "") == said
