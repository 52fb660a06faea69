"""Every call of OpenAI's client with every field that is honoured, its answers checked strictly against its own types.

Each is made in the client's four ways: sync and async, and as a raw and a streamed HTTP response.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from tests.api.live_server import HELLO, LiveServer

MODEL = "tiny"
MESSAGES = [{"role": "developer", "content": "string", "name": "name"}, {"role": "user", "content": "Hi"}]
FUNCTION = {"name": "name", "description": "description", "parameters": {"type": "object"}, "strict": True}
SHARED: dict[str, Any] = {"temperature": 1, "top_p": 1, "user": "user-1234"}
PENALTIES: dict[str, Any] = {"frequency_penalty": -2, "presence_penalty": -2, "logit_bias": {"5": 1}, "seed": -9007}
CHAT: dict[str, Any] = {
    "messages": MESSAGES,
    "logprobs": True,
    "max_completion_tokens": 100,
    "max_tokens": 100,
    "metadata": {"foo": "string"},
    "modalities": ["text"],
    "n": 2,
    "parallel_tool_calls": True,
    "prompt_cache_key": "key",
    "response_format": {"type": "text"},
    "safety_identifier": "someone",
    "service_tier": "auto",
    "stop": "\n",
    "store": False,
    "tool_choice": "auto",
    "tools": [{"type": "function", "function": FUNCTION}],
    "top_logprobs": 2,
    **SHARED,
    **PENALTIES,
}
COMPLETION: dict[str, Any] = {
    "prompt": "This is a test.",
    "best_of": 1,
    "echo": False,  # an echo's logprobs begin with null, in OpenAI's own answers too; the client's type knows none
    "logprobs": 2,
    "max_tokens": 16,
    "n": 1,
    "stop": "\n",
    **SHARED,
    **PENALTIES,
}
RESPONSE: dict[str, Any] = {
    "input": [{"role": "user", "content": "Hi"}],
    "include": ["message.output_text.logprobs"],
    "instructions": "instructions",
    "max_output_tokens": 100,
    "metadata": {"foo": "string"},
    "parallel_tool_calls": True,
    "prompt_cache_key": "key",
    "safety_identifier": "someone",
    "service_tier": "auto",
    "store": False,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [{"type": "function", **FUNCTION}],
    "top_logprobs": 2,
    "truncation": "auto",
    **SHARED,
}
CALLS = [
    ("chat.completions", {"messages": MESSAGES}, ChatCompletion),
    ("chat.completions", CHAT, ChatCompletion),
    ("completions", {"prompt": "Hi"}, Completion),
    ("completions", COMPLETION, Completion),
    ("responses", {"input": "Hi"}, Response),
    ("responses", RESPONSE, Response),
]
ALL = pytest.mark.parametrize(("resource", "fields", "kind"), CALLS, ids=[f"{c[0]}-{len(c[1])}" for c in CALLS])


def of(client: Any, resource: str) -> Any:
    for name in resource.split("."):
        client = getattr(client, name)
    return client


def settings(server: LiveServer, *, strict: bool) -> dict[str, Any]:
    shared = {"base_url": f"{server.url}/v1", "api_key": "any", "max_retries": 0}
    return {**shared, "_strict_response_validation": strict}


def knows_its_events(kind: type[Any]) -> bool:
    """A text completion's chunks have no finish_reason before the last, which the client's type does not know."""
    return kind is not Completion


@pytest.fixture
def client(qwen_server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(**settings(qwen_server, strict=True)) as made:
        yield made


@ALL
def test_an_answer_whole_raw_and_streamed_is_of_the_clients_type(
    client: OpenAI, resource: str, fields: dict[str, Any], kind: type[Any]
) -> None:
    calls = of(client, resource)
    assert isinstance(calls.create(model=MODEL, **fields), kind)
    raw = calls.with_raw_response.create(model=MODEL, **fields)
    assert isinstance(raw.parse(), kind)
    with calls.with_streaming_response.create(model=MODEL, **fields) as response:
        assert isinstance(response.parse(), kind)


@ALL
def test_a_streams_events_are_of_the_clients_types(
    qwen_server: LiveServer, resource: str, fields: dict[str, Any], kind: type[Any]
) -> None:
    with OpenAI(**settings(qwen_server, strict=knows_its_events(kind))) as client:
        calls = of(client, resource)
        for stream in (
            calls.create(model=MODEL, stream=True, **fields),
            calls.with_raw_response.create(model=MODEL, stream=True, **fields).parse(),
        ):
            events = list(stream)
            assert HELLO in said(events)
            if kind is not Response:
                assert all(
                    isinstance(event, ChatCompletionChunk if kind is ChatCompletion else kind) for event in events
                )


@ALL
async def test_the_async_client_reads_the_same(
    qwen_server: LiveServer, resource: str, fields: dict[str, Any], kind: type[Any]
) -> None:
    async with AsyncOpenAI(**settings(qwen_server, strict=knows_its_events(kind))) as client:
        calls = of(client, resource)
        assert isinstance(await calls.create(model=MODEL, **fields), kind)
        raw = await calls.with_raw_response.create(model=MODEL, **fields)
        assert isinstance(raw.parse(), kind)
        async with calls.with_streaming_response.create(model=MODEL, **fields) as response:
            assert isinstance(await response.parse(), kind)
        assert HELLO in said([event async for event in await calls.create(model=MODEL, stream=True, **fields)])


def test_models_are_of_the_clients_type(client: OpenAI) -> None:
    assert isinstance(client.models.retrieve(MODEL), Model)
    assert all(isinstance(model, Model) for model in client.models.with_raw_response.list().parse())


def said(events: list[Any]) -> str:
    """The first choice's text."""
    text = ""
    for event in events:
        if getattr(event, "type", "") == "response.output_text.delta":
            text += event.delta
        for choice in getattr(event, "choices", ()):
            if choice.index == 0:
                text += getattr(choice, "text", "") or getattr(getattr(choice, "delta", None), "content", "") or ""
    return text
