"""`POST /v1/messages`, streamed: the whole sequence of events, and Anthropic's client over both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.types import MessageParam, ToolParam
from anthropic.types.beta import BetaMessageParam
from tests.api.live_server import HELLO, LiveServer, live_server, post_unread, wait_until
from tests.api.test_disconnects import read_chunked
from tests.api.test_messages_route import HI, WEATHER
from tests.api.test_responses import CALL
from tests.api.typed_events import Event, events_of, types_of
from tests.tokenizer.templates import CHATML

from firsttoken.tokenizer import Tokenizer

BLOCK = ["content_block_start", "content_block_delta", "content_block_stop"]
END = ["message_delta", "message_stop"]
TURNS: list[MessageParam] = [{"role": "user", "content": "Hi"}]
TOOL: ToolParam = {"name": "get_weather", "input_schema": {"type": "object"}}


@pytest.fixture(scope="module")
def shared(qwen_with: Callable[[str], Tokenizer]) -> Iterator[LiveServer]:
    with live_server(qwen_with(CHATML), max_model_len=2048, api_keys=("secret",)) as running:
        running.client.headers["x-api-key"] = "secret"
        yield running


@pytest.fixture
def server(shared: LiveServer) -> LiveServer:
    shared.reset()
    return shared


@pytest.fixture
def client(server: LiveServer) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key="secret", max_retries=0) as made:
        yield made


@pytest.fixture
async def async_client(server: LiveServer) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=server.url, auth_token="secret", api_key=None, max_retries=0) as made:
        yield made


def streamed(server: LiveServer, **body: Any) -> list[Event]:
    return events_of(server.post("/v1/messages", **{"messages": HI, "max_tokens": 500, "stream": True, **body}))


def blocks_of(events: list[Event]) -> list[dict[str, Any]]:
    """The content that the events of a stream join to."""
    blocks: list[dict[str, Any]] = []
    arguments = ""
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(blocks)
                blocks.append(event["content_block"])
                arguments = ""
            case "content_block_delta":
                assert event["index"] == len(blocks) - 1
                (field,) = event["delta"].keys() - {"type"}
                if field == "partial_json":
                    arguments += event["delta"][field]
                    blocks[-1]["input"] = arguments
                else:
                    blocks[-1][field] += event["delta"][field]
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["input"])
    return blocks


def test_a_texts_events_come_in_anthropics_order(server: LiveServer) -> None:
    server.backend.cached_tokens = 3
    events = streamed(server, model="tiny")
    assert types_of(events) == ["message_start", "ping", *BLOCK, *END]
    start, *_, delta, _stop = events
    prompt = len(server.backend.submitted[-1].prompt_token_ids)
    assert start["message"]["content"] == []
    assert start["message"]["stop_reason"] is None
    assert start["message"]["usage"]["input_tokens"] == prompt
    assert blocks_of(events) == [{"type": "text", "text": HELLO}]
    assert delta["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert delta["usage"]["output_tokens"] == len(HELLO) + 1
    assert (delta["usage"]["input_tokens"], delta["usage"]["cache_read_input_tokens"]) == (prompt - 3, 3)
    server.next_is_right()


@pytest.mark.parametrize("text", [HELLO, "", CALL, "See.\n" + CALL + "\n" + CALL, "<think>\nHm.\n</think>\n\nSo."])
def test_a_streams_blocks_join_to_the_unstreamed_answer(server: LiveServer, text: str) -> None:
    server.says(text)
    whole = server.post("/v1/messages", messages=HI, max_tokens=500, tools=[WEATHER]).json()
    events = streamed(server, tools=[WEATHER])
    blocks = blocks_of(events)
    for block in (*blocks, *whole["content"]):
        block.pop("id", None)
    assert blocks == whole["content"]
    (delta,) = [event for event in events if event["type"] == "message_delta"]
    assert delta["delta"]["stop_reason"] == whole["stop_reason"]


def test_a_stop_sequence_is_named_and_not_sent(server: LiveServer) -> None:
    events = streamed(server, stop_sequences=["there", "lo t"])
    assert blocks_of(events) == [{"type": "text", "text": "Hel"}]
    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "lo t"}
    server.next_is_right()


def test_a_call_that_was_cut_is_no_use_of_a_tool(server: LiveServer) -> None:
    server.says(CALL)
    body = {"tools": [WEATHER], "max_tokens": len(CALL) - 20}
    whole = server.post("/v1/messages", messages=HI, **body).json()
    assert [block["type"] for block in whole["content"]] == ["text"]
    assert whole["stop_reason"] == "max_tokens"
    events = streamed(server, **body)
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"
    assert types_of(events)[-3:] == ["content_block_stop", *END]


def test_every_event_is_two_lines_by_any_reading(server: LiveServer) -> None:
    text = 'a\nb\rc\u2028d\u2029e\x85f"\\\x0b\x0c'
    server.says(text)
    assert blocks_of(streamed(server))[0]["text"] == text


def test_a_failure_in_mid_stream_is_an_error_event_and_the_end(server: LiveServer) -> None:
    server.backend.fails_after = 3
    response = server.post("/v1/messages", messages=HI, max_tokens=500, stream=True)
    *events, error = events_of(response)
    assert types_of(events)[-1] == "content_block_delta"
    assert error["error"] == {"type": "api_error", "message": "The step failed."}
    assert error["request_id"] == response.headers["x-request-id"]
    server.backend.fails_after = None
    server.next_is_right()


def test_the_death_of_the_engine_is_an_error_event_and_the_end(server: LiveServer) -> None:
    server.says("x" * 200)
    server.backend.pace = 0.02
    connection = post_unread(server.port, {"messages": HI, "max_tokens": 500, "stream": True}, **PATH)
    wait_until(lambda: server.backend.steps > 2)
    server.call(server.backend.die)
    *_, last = read_chunked(connection).decode().split("\n\n")[:-1]
    connection.close()
    error = json.loads(last.partition("data: ")[2])["error"]
    assert error == {"type": "overloaded_error", "message": "The engine stopped."}


def test_a_client_that_goes_away_frees_the_engine(server: LiveServer) -> None:
    server.says("x" * 200)
    server.backend.pace = 0.02
    connection = post_unread(server.port, {"messages": HI, "max_tokens": 500, "stream": True}, **PATH)
    wait_until(lambda: server.backend.steps > 2)
    connection.close()
    wait_until(lambda: not server.backend.running, 0.5)
    assert len(server.backend.aborted) == 1
    server.backend.pace = 0
    server.next_is_right()


PATH: dict[str, Any] = {"path": "/v1/messages", "headers": "x-api-key: secret\r\n"}


def test_a_slow_reader_gets_its_text_merged(tokenizer: Tokenizer) -> None:
    text = "0123456789" * 300
    with live_server(tokenizer, max_model_len=4096, send_buffer=8192) as server:
        server.says(text)
        slow = post_unread(server.port, {"messages": HI, "max_tokens": 4000, "stream": True}, 4096, **PATH)
        wait_until(lambda: bool(server.backend.running))
        wait_until(lambda: not server.backend.running, 20)
        events = [json.loads(block.partition("data: ")[2]) for block in read_chunked(slow).decode().split("\n\n")[:-1]]
        slow.close()
    deltas = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(deltas) == text
    assert len(deltas) < len(text) * 0.9


def test_anthropics_client_reads_the_answer_and_counts(client: Anthropic) -> None:
    made = client.messages.create(model="tiny", max_tokens=500, system="Be brief.", messages=TURNS)
    (block,) = made.content
    assert block.type == "text"
    assert block.text == HELLO
    assert made.stop_reason == "end_turn"
    counted = client.messages.count_tokens(model="tiny", system="Be brief.", messages=TURNS)
    assert counted.input_tokens == made.usage.input_tokens


def test_anthropics_beta_client_asks_the_same_route(client: Anthropic) -> None:
    turns: list[BetaMessageParam] = [{"role": "user", "content": "Hi"}]
    made = client.beta.messages.create(model="tiny", max_tokens=500, messages=turns, betas=["token-efficient-tools"])
    assert [block.text for block in made.content if block.type == "text"] == [HELLO]


def test_anthropics_stream_helper_puts_the_answer_together(client: Anthropic, server: LiveServer) -> None:
    server.says("<think>\nHm.\n</think>\n\nSee.\n" + CALL)
    with client.messages.stream(model="tiny", max_tokens=500, messages=TURNS, tools=[TOOL]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    thought, said, use = final.content
    assert thought.type == "thinking"
    assert thought.thinking == "Hm."
    assert said.type == "text"
    assert said.text == text == "See."
    assert use.type == "tool_use"
    assert use.input == {"city": "北京"}
    assert final.stop_reason == "tool_use"
    assert final.usage.output_tokens > 0


async def test_anthropics_async_client_with_the_other_header(async_client: AsyncAnthropic) -> None:
    stream = await async_client.messages.create(model="tiny", max_tokens=500, messages=TURNS, stream=True)
    kinds = [event.type async for event in stream]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"


def test_anthropics_client_tells_errors_apart(client: Anthropic, server: LiveServer) -> None:
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        client.messages.create(model="nobody", max_tokens=5, messages=TURNS)
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.messages.create(model="tiny", max_tokens=-1, messages=TURNS)
    with pytest.raises(anthropic.AuthenticationError):
        client.with_options(api_key="wrong").messages.create(model="tiny", max_tokens=5, messages=TURNS)
    server.backend.fails_after = 2
    with pytest.raises(anthropic.APIStatusError, match="The step failed"):
        list(client.messages.create(model="tiny", max_tokens=5, messages=TURNS, stream=True))
    server.backend.fails_after = None
    server.next_is_right()
