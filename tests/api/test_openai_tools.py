"""Tools through OpenAI's own client: its helpers put streamed calls together and parse them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel
from tests.api.live_server import LiveServer


class Day(BaseModel):
    month: int
    name: str


class GetWeather(BaseModel):
    """Weather of a place."""

    city: str
    days: list[Day]


ARGUMENTS: dict[str, Any] = {"city": "北京 🙂", "days": [{"month": 5, "name": "a \"quoted\" 'day'\n"}]}
CALL = f'<tool_call>\n{{"name": "GetWeather", "arguments": {json.dumps(ARGUMENTS, ensure_ascii=False)}}}\n</tool_call>'
TOOLS = [openai.pydantic_function_tool(GetWeather)]
QUESTION: Any = [{"role": "user", "content": "How will it be?"}]


@pytest.fixture
def server(qwen_server: LiveServer) -> LiveServer:
    qwen_server.says(f"Let me see.\n{CALL}\n{CALL}")
    return qwen_server


@pytest.fixture
def client(server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as made:
        yield made


def test_the_stream_helper_puts_calls_together(client: OpenAI, server: LiveServer) -> None:
    with client.chat.completions.stream(model="tiny", messages=QUESTION, tools=TOOLS) as stream:
        kinds = {event.type for event in stream}
        answer = stream.get_final_completion()
    assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done", "content.delta"} <= kinds
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    calls = choice.message.tool_calls or []
    assert [json.loads(call.function.arguments) for call in calls] == [ARGUMENTS, ARGUMENTS]
    assert [call.function.parsed_arguments for call in calls] == [GetWeather(**ARGUMENTS)] * 2
    server.next_is_right()


def test_an_answer_is_parsed_into_the_tools_own_class(client: OpenAI) -> None:
    answer = client.chat.completions.parse(model="tiny", messages=QUESTION, tools=TOOLS)
    calls = answer.choices[0].message.tool_calls or []
    assert [call.function.parsed_arguments for call in calls] == [GetWeather(**ARGUMENTS)] * 2


def test_a_whole_round_of_calls_and_results(client: OpenAI, server: LiveServer) -> None:
    """What the client was given is sent back as it is, with results."""
    first = client.chat.completions.create(model="tiny", messages=QUESTION, tools=TOOLS).choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in first.tool_calls or ()]
    history: Any = [*QUESTION, first, *results]
    again = client.chat.completions.create(model="tiny", messages=history, tools=TOOLS)
    assert again.choices[0].message.tool_calls
    ids = server.backend.submitted[-1].prompt_token_ids
    prompt = server.vocabulary.tokenizer.decode(ids, skip_special_tokens=False)
    assert f"<|im_start|>assistant\nLet me see.\n{CALL}\n{CALL}<|im_end|>\n" in prompt
    assert prompt.count("<tool_response>\nsunny\n</tool_response>") == 2
