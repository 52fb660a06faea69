"""`POST /v1/responses`, streamed: the whole sequence of events, and OpenAI's client over it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pydantic
import pytest
from openai import OpenAI
from openai.types.responses import FunctionToolParam
from openai.types.responses import Response as OpenAIResponse
from tests.api.live_server import HELLO, LiveServer, live_server, post_unread, wait_until
from tests.api.test_disconnects import read_chunked
from tests.api.test_responses import CALL, WEATHER
from tests.api.typed_events import Event, events_of, types_of
from tests.tokenizer.templates import CHATML

from firsttoken.tokenizer import Tokenizer

TEXT = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
THOUGHT = [kind.replace("output_text", "reasoning_text") for kind in TEXT]
CALLED = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]
BEGIN = ["response.created", "response.in_progress"]


@pytest.fixture(scope="module")
def shared(qwen_with: Callable[[str], Tokenizer]) -> Iterator[LiveServer]:
    with live_server(qwen_with(CHATML), max_model_len=2048) as running:
        yield running


@pytest.fixture
def server(shared: LiveServer) -> LiveServer:
    shared.reset()
    return shared


@pytest.fixture
def client(server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as made:
        yield made


def streamed(server: LiveServer, **body: Any) -> list[Event]:
    events = events_of(server.post("/v1/responses", **{"input": "Hi", "stream": True, **body}))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    """What two answers to one request have in common."""
    output = [
        {key: value for key, value in item.items() if key not in ("id", "call_id")} for item in response["output"]
    ]
    changing = ("id", "created_at", "completed_at")
    return {key: value for key, value in response.items() if key not in changing} | {"output": output}


def test_a_texts_events_come_in_openais_order(server: LiveServer) -> None:
    events = streamed(server)
    assert types_of(events) == [*BEGIN, *TEXT, "response.completed"]
    created, *_, done, part, item, last = events
    assert created["response"]["status"] == "in_progress"
    assert created["response"]["output"] == []
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(event["delta"] for event in deltas) == done["text"] == part["part"]["text"] == HELLO
    assert last["response"]["output"] == [item["item"]]
    assert {event["item_id"] for event in deltas} == {item["item"]["id"]}
    assert last["response"]["id"] == created["response"]["id"]
    server.next_is_right()


@pytest.mark.parametrize("text", [HELLO, CALL, "See.\n" + CALL + "\n" + CALL, "<think>\nHm.\n</think>\n\nSo."])
def test_the_last_events_object_is_the_unstreamed_answer(server: LiveServer, text: str) -> None:
    server.says(text)
    whole = server.post("/v1/responses", input="Hi", tools=[WEATHER]).json()
    last = streamed(server, tools=[WEATHER])[-1]["response"]
    assert without_ids(last) == without_ids(whole)


def test_thoughts_text_and_calls_are_items_one_after_the_other(server: LiveServer) -> None:
    server.says("<think>\nHm.\n</think>\n\nLet me see.\n" + CALL)
    events = streamed(server, tools=[WEATHER])
    assert types_of(events) == [*BEGIN, *THOUGHT, *TEXT, *CALLED, "response.completed"]
    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == [0, 1, 2]
    assert added[2]["item"]["arguments"] == ""
    deltas = [event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"]
    (done,) = [event for event in events if event["type"] == "response.function_call_arguments.done"]
    assert "".join(deltas) == done["arguments"]
    assert json.loads(done["arguments"]) == {"city": "北京"}
    assert done["name"] == "get_weather"


def test_a_length_that_is_reached_ends_as_incomplete(server: LiveServer) -> None:
    *_, item, last = streamed(server, max_output_tokens=3)
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert item["item"]["status"] == "incomplete"
    assert item["item"]["content"][0]["text"] == "Hel"


def test_a_call_that_breaks_off_is_never_passed_off_as_whole(server: LiveServer) -> None:
    for broken in ('{"city": [1}}', '{"city": "A'):
        server.says('<tool_call>\n{"name": "get_weather", "arguments": ' + broken)
        items = streamed(server, tools=[WEATHER])[-1]["response"]["output"]
        calls = [item for item in items if item["type"] == "function_call"]
        assert [call["status"] for call in calls] == ["incomplete"]
    server.next_is_right()


def test_logprobs_come_with_their_text(server: LiveServer) -> None:
    events = streamed(server, top_logprobs=2)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    for event in deltas:
        assert "".join(entry["token"] for entry in event["logprobs"]) == event["delta"]
    (done,) = [event for event in events if event["type"] == "response.output_text.done"]
    assert done["logprobs"] == [entry for event in deltas for entry in event["logprobs"]]


def test_every_event_is_two_lines_by_any_reading(server: LiveServer) -> None:
    text = 'a\nb\rc\u2028d\u2029e\x85f"\\\x0b\x0c'
    server.says(text)
    assert streamed(server)[-1]["response"]["output"][0]["content"][0]["text"] == text


def test_a_failure_in_mid_stream_is_an_error_and_a_failed_response(server: LiveServer) -> None:
    server.backend.fails_after = 3
    *events, error, failed = streamed(server)
    assert types_of(events)[-1] == "response.output_text.delta"
    assert error["type"] == "error"
    assert error["message"] == "The step failed."
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": "The step failed."}
    server.backend.fails_after = None
    server.next_is_right()


def test_a_client_that_goes_away_frees_the_engine(server: LiveServer) -> None:
    server.says("x" * 200)
    server.backend.pace = 0.02
    connection = post_unread(server.port, {"input": "Hi", "stream": True}, path="/v1/responses")
    wait_until(lambda: server.backend.steps > 2)
    connection.close()
    wait_until(lambda: not server.backend.running, 0.5)
    assert len(server.backend.aborted) == 1
    server.backend.pace = 0
    server.next_is_right()


def test_a_slow_reader_gets_its_text_merged(tokenizer: Tokenizer) -> None:
    text = "0123456789" * 300
    with live_server(tokenizer, max_model_len=4096, send_buffer=8192) as server:
        server.says(text)
        body = {"input": "Hi", "stream": True}
        slow = post_unread(server.port, body, 4096, path="/v1/responses")
        wait_until(lambda: bool(server.backend.running))
        wait_until(lambda: not server.backend.running, 20)
        events = [json.loads(block.partition("data: ")[2]) for block in read_chunked(slow).decode().split("\n\n")[:-1]]
        slow.close()
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == text
    assert len(deltas) < len(text) * 0.9
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == text


def test_openais_client_reads_the_answer_and_the_stream(client: OpenAI) -> None:
    made = client.responses.create(model="tiny", input="Hi", instructions="Be brief.", include=[])
    assert made.output_text == HELLO
    assert made.usage is not None
    assert OpenAIResponse.model_validate(made.model_dump(), strict=True).status == "completed"
    stream = client.responses.create(model="tiny", input="Hi", stream=True)
    assert "".join(event.delta for event in stream if event.type == "response.output_text.delta") == HELLO


def test_openais_stream_helper_puts_the_answer_together(client: OpenAI, server: LiveServer) -> None:
    server.says("<think>\nHm.\n</think>\n\nSee.\n" + CALL)
    tool = FunctionToolParam(type="function", name="get_weather", parameters={"type": "object"}, strict=True)
    with client.responses.stream(model="tiny", input="Hi", tools=[tool]) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-1] == final.output_text == "See."
    call = final.output[2]
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"city": "北京"}


def test_openais_client_tells_errors_apart(client: OpenAI, server: LiveServer) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="tiny", input="Hi", store=True)
    assert caught.value.param == "store"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")
    server.backend.fails_after = 2
    events = list(client.responses.create(model="tiny", input="Hi", stream=True))
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]


class Fact(pydantic.BaseModel):
    city: str


def test_openais_parse_helper_reads_a_form(client: OpenAI, server: LiveServer) -> None:
    server.says('{"city": "Paris"}')
    made = client.responses.parse(model="tiny", input="Hi", text_format=Fact)
    assert made.output_parsed == Fact(city="Paris")
    grammar = server.backend.submitted[-1].sampling.grammar
    assert grammar is not None
    assert json.loads(grammar.source)["required"] == ["city"]
