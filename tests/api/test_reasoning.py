"""Thoughts over HTTP: apart from the answer, streamed or not, shown or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.api.live_server import HELLO, LiveServer, live_server
from tests.tokenizer.templates import CHATML

from firsttoken.tokenizer import Tokenizer

THOUGHTS = "Hm, 好。\n\nSo <four>."
SAID = f"<think>\n{THOUGHTS}\n</think>\n\nFour 🙂.\n"
ANSWER = "Four 🙂.\n"
IN_PROMPT = "{%- if enable_thinking is defined"
OPENING = CHATML.replace("{{- '<think>\\n\\n</think>", "{{- '\\n</think>").replace(
    IN_PROMPT, "{{- '<think>\\n' }}" + IN_PROMPT
)
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
USERS = [{"role": "user", "content": "Say <think>"}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


@pytest.fixture
def server(qwen_server: LiveServer) -> LiveServer:
    return qwen_server


def answered(server: LiveServer, **body: Any) -> dict[str, Any]:
    response = server.chat(**body)
    assert response.status_code == 200, response.text
    message: dict[str, Any] = response.json()["choices"][0]["message"]
    return message


def streamed(server: LiveServer, **body: Any) -> dict[str, str]:
    joined: dict[str, str] = {}
    for chunk in server.chat_stream(**body):
        for choice in chunk["choices"]:
            for field, text in choice["delta"].items():
                if field != "role" and isinstance(text, str):
                    joined[field] = joined.get(field, "") + text
    return joined


def told(server: LiveServer) -> str:
    ids = server.backend.submitted[-1].prompt_token_ids
    return server.vocabulary.tokenizer.decode(ids, skip_special_tokens=False)


def test_thoughts_are_apart_from_the_answer(server: LiveServer) -> None:
    server.says(SAID)
    message = answered(server)
    assert message == {
        "role": "assistant",
        "content": ANSWER,
        "refusal": None,
        "reasoning_content": THOUGHTS,
        "reasoning": THOUGHTS,
    }
    assert streamed(server) == {"content": ANSWER, "reasoning_content": THOUGHTS, "reasoning": THOUGHTS}
    server.next_is_right()


def test_an_answer_without_thoughts_is_plain(server: LiveServer) -> None:
    assert answered(server) == {"role": "assistant", "content": HELLO, "refusal": None}
    assert server.chat().json()["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert streamed(server) == {"content": HELLO}


def test_thoughts_that_are_not_wanted_are_not_sent_and_yet_counted(server: LiveServer) -> None:
    server.says(SAID)
    response = server.chat(include_reasoning=False).json()
    assert response["choices"][0]["message"] == {"role": "assistant", "content": ANSWER, "refusal": None}
    usage = response["usage"]
    assert usage["completion_tokens"] == len(SAID.encode()) + 1
    inside = SAID[len("<think") : SAID.index("</think>") + len("</think")]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": len(inside.encode())}
    assert streamed(server, include_reasoning=False) == {"content": ANSWER}
    server.next_is_right()


def test_an_answer_cut_in_its_thoughts_has_no_content(server: LiveServer) -> None:
    server.says(SAID)
    choice = server.chat(max_tokens=20).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] is None
    assert THOUGHTS.startswith(choice["message"]["reasoning_content"])
    server.next_is_right()


def test_thoughts_that_the_template_opens_are_found_without_their_tag(qwen_with: Callable[[str], Tokenizer]) -> None:
    assert OPENING != CHATML
    with live_server(qwen_with(OPENING), max_model_len=4096) as opening:
        opening.says(SAID.removeprefix("<think>\n"))
        for message in (answered(opening), streamed(opening)):
            assert message["reasoning_content"] == THOUGHTS
            assert message["content"] == ANSWER
        opening.says(HELLO)
        assert answered(opening, chat_template_kwargs={"enable_thinking": False})["content"] == HELLO


def test_a_model_can_be_told_not_to_think(server: LiveServer) -> None:
    message = answered(server, chat_template_kwargs={"enable_thinking": False})
    assert told(server).endswith("<think>\n\n</think>\n\n")
    assert message["content"] == HELLO


def test_a_model_that_cannot_think_need_not_be_told(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer) as plain:
        plain.says(SAID)
        message = answered(plain, chat_template_kwargs={"enable_thinking": False})
        assert message == {"role": "assistant", "content": SAID, "refusal": None}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_can_be_sent_back(server: LiveServer, name: str) -> None:
    messages = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4", name: THOUGHTS}]
    response = server.post("/v1/chat/completions", messages=messages)
    assert response.status_code == 200, response.text
    assert "x-firsttoken-ignored-fields" not in response.headers
    assert f"<think>\n{THOUGHTS}\n</think>\n\n4<|im_end|>" in told(server)
    server.next_is_right()


def test_a_message_goes_on_within_its_thoughts(server: LiveServer) -> None:
    server.says("so.\n</think>\n\n4")
    messages = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "<think>\nHm, "}]
    message = server.post("/v1/chat/completions", messages=messages, continue_final_message=True).json()
    assert message["choices"][0]["message"]["reasoning_content"] == "so."
    assert message["choices"][0]["message"]["content"] == "4"


def test_a_tag_that_a_user_wrote_opens_nothing(server: LiveServer) -> None:
    for opens in (True, False):
        assert answered(server, messages=USERS, add_generation_prompt=opens)["content"] == HELLO
    server.next_is_right()


def test_calls_come_behind_the_thoughts_and_not_in_them(server: LiveServer) -> None:
    server.says(f"<think>\n{CALL}?\n</think>\n\n{CALL}")
    message = answered(server, tools=[ADD])
    assert message["reasoning_content"] == f"{CALL}?"
    assert message["content"] is None
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == ['{"a": 1}']
    server.next_is_right()


def test_logprobs_are_those_of_thoughts_and_answer(server: LiveServer) -> None:
    server.says(SAID)
    entries = server.chat(logprobs=True).json()["choices"][0]["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == SAID


@pytest.mark.parametrize(
    ("parser", "said", "expected"),
    [
        ("none", SAID, (None, SAID)),
        ("qwen3", SAID, (THOUGHTS, ANSWER)),
        ("qwen3", HELLO, (None, HELLO)),
        ("deepseek_r1", SAID, (THOUGHTS, ANSWER)),
        ("deepseek_r1", SAID.removeprefix("<think>\n"), (THOUGHTS, ANSWER)),
    ],
)
def test_a_flag_says_how_thoughts_are_told(
    tokenizer: Tokenizer, parser: str, said: str, expected: tuple[str | None, str]
) -> None:
    with live_server(tokenizer, reasoning_parser=parser) as plain:
        plain.says(said)
        message = answered(plain)
        assert (message.get("reasoning_content"), message["content"]) == expected


def test_where_a_call_must_come_thoughts_may_come_first(server: LiveServer) -> None:
    server.says(f"<think>\nHm.\n</think>\n\n{CALL}")
    message = answered(server, tools=[ADD], tool_choice="required")
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"a": 1}
    grammar = server.backend.submitted[-1].sampling.grammar
    assert grammar is not None
    assert grammar.source.startswith("start: (<think> thoughts GAP )? call")


def test_a_structured_answer_begins_behind_the_thoughts(server: LiveServer) -> None:
    server.says('<think>\nHm.\n</think>\n\n{"a": 1}')
    message = answered(server, response_format={"type": "json_object"})
    assert (message["reasoning_content"], message["content"]) == ("Hm.", '{"a": 1}')
    grammar = server.backend.submitted[-1].sampling.grammar
    assert grammar is not None
    assert grammar.around.startswith("start: (<think> thoughts GAP )? @answer")
    answered(server, response_format={"type": "json_object"}, chat_template_kwargs={"enable_thinking": False})
    grammar = server.backend.submitted[-1].sampling.grammar
    assert grammar is not None
    assert not grammar.around
