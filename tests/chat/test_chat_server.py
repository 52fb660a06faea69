"""The chat's HTTP client against a scripted server over real sockets."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from tests.chat.scripted_chat import CUT, HANG, Refusal, Reply, ScriptedChat

from firsttoken.chat.answer import Answer
from firsttoken.chat.chat_errors import (
    AnswerCut,
    ChatError,
    ContextTooLong,
    KeyRefused,
    NotAServer,
    Refused,
    ServerBusy,
    ServerDown,
    ServerLoading,
    ServerUnavailable,
    WaitingError,
)
from firsttoken.chat.chat_server import ChatServer
from firsttoken.chat.event_stream import Piece
from firsttoken.chat.settings import Settings

HELLO = [{"role": "user", "content": "hello"}]


class Clock:
    """Sleeps in no time and notes how long it was asked to."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


async def ask(chat: ScriptedChat, settings: Settings | None = None, **options: Any) -> tuple[Answer, list[Piece]]:
    server = ChatServer(chat.url, sleep=Clock(), **options)
    answer = Answer()
    try:
        pieces = [piece async for piece in server.stream("demo", HELLO, settings or Settings(), answer)]
    finally:
        await server.close()
    return answer, pieces


async def failure(reply: Reply | Refusal, kind: type[ChatError]) -> ChatError:
    async with ScriptedChat(reply) as chat:
        with pytest.raises(kind) as caught:
            await ask(chat)
    return caught.value


async def test_an_answer_collects_text_usage_and_times() -> None:
    async with ScriptedChat(Reply(["Hel", "lo 你好"], usage=(9, 4, 3))) as chat:
        answer, pieces = await ask(chat)
    assert answer.text == "Hello 你好"
    assert pieces == [Piece("Hel"), Piece("lo 你好")]
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (9, 4, 3)
    assert answer.finish_reason == "stop"
    assert answer.ttft is not None
    assert answer.e2e is not None
    assert 0 < answer.ttft <= answer.e2e


async def test_line_separators_inside_a_text_do_not_end_its_event() -> None:
    text = "a\u2028b\x85c\u2029d\x0be"
    async with ScriptedChat(Reply([text])) as chat:
        assert (await ask(chat))[0].text == text


async def test_halves_of_characters_do_no_harm_and_an_error_of_null_is_none() -> None:
    async with ScriptedChat(Reply([{"error": None, "choices": [{"delta": {"content": "a\ud83d"}}]}])) as chat:
        assert (await ask(chat))[0].text == "a\N{REPLACEMENT CHARACTER}"


async def test_reasoning_is_told_apart_and_starts_the_clock() -> None:
    thought = {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}
    async with ScriptedChat(Reply([thought, "yes"])) as chat:
        server, answer = ChatServer(chat.url), Answer()
        stream = server.stream("demo", HELLO, Settings(), answer)
        assert await anext(stream) == Piece("hm", thought=True)
        first = answer.ttft
        assert first is not None
        assert [piece async for piece in stream] == [Piece("yes")]
        assert (answer.reasoning, answer.text, answer.ttft) == ("hm", "yes", first)
        await server.close()


async def test_only_settings_that_were_given_are_sent() -> None:
    async with ScriptedChat(Reply()) as chat:
        await ask(chat)
        await ask(chat, Settings(temperature=0.0, top_k=5, max_tokens=9, json_schema={"type": "object"}))
    assert set(chat.requests[0]) == {"model", "messages", "stream", "stream_options"}
    assert chat.requests[0]["stream_options"] == {"include_usage": True}
    sent = chat.requests[1]
    assert (sent["temperature"], sent["top_k"], sent["max_completion_tokens"]) == (0.0, 5, 9)
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}


async def test_closing_the_stream_closes_the_connection() -> None:
    async with ScriptedChat(Reply(["x", HANG])) as chat:
        server = ChatServer(chat.url)
        answer = Answer()
        stream = server.stream("demo", HELLO, Settings(), answer)
        assert await anext(stream) == Piece("x")
        await stream.aclose()
        async with asyncio.timeout(5):
            await chat.someone_left.wait()
        assert answer.e2e is not None
        await server.close()


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
async def test_a_url_is_taken_with_or_without_v1(end: str) -> None:
    async with ScriptedChat(Reply()) as chat:
        server = ChatServer(chat.url + end, api_key="secret")
        [model] = await server.models()
        await server.close()
    assert chat.paths == ["/v1/models"]
    assert chat.keys == ["Bearer secret"]
    assert (model.name, model.context) == ("demo", 4096)
    assert model.recommended == Settings(temperature=0.2, top_k=20)


@pytest.mark.parametrize("body", [b"<html>", {}, {"data": []}, [1], {"data": [{}]}, {"data": 3}])
async def test_something_else_on_the_port_is_told_in_one_sentence(body: Any) -> None:
    async with ScriptedChat(Reply()) as chat:
        chat.models = body
        server = ChatServer(chat.url)
        with pytest.raises(NotAServer, match="does not answer like an OpenAI-compatible server"):
            await server.models()
        await server.close()


async def test_no_server_is_told_after_a_few_tries() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    told: list[tuple[WaitingError, float]] = []
    server = ChatServer(url, sleep=Clock())
    with pytest.raises(ServerDown, match="firsttoken serve"):
        await server.models(lambda error, pause: told.append((error, pause)))
    assert isinstance(await server.state(), ServerDown)
    assert [pause for _, pause in told] == [0.25, 0.5, 1.0]
    await server.close()


async def test_a_server_that_comes_back_is_asked_again() -> None:
    async with ScriptedChat(Refusal(503, "The engine is not running."), Reply(["back"])) as chat:
        assert (await ask(chat))[0].text == "back"


async def test_a_full_queue_is_waited_out_as_the_server_advises() -> None:
    busy = Refusal(429, "The queue is full.", "queue_full", {"Retry-After": "7"})
    async with ScriptedChat(busy, busy, Reply(["in"])) as chat:
        clock, told = Clock(), list[float]()
        server = ChatServer(chat.url, sleep=clock)
        stream = server.stream("demo", HELLO, Settings(), Answer(), lambda error, pause: told.append(pause))
        assert [piece async for piece in stream] == [Piece("in")]
        assert clock.slept == told == [7, 7]
        await server.close()


async def test_a_queue_that_stays_full_is_told_in_the_end() -> None:
    error = await failure(Refusal(429, "Full.", headers={"Retry-After": "25"}), ServerBusy)
    assert "队列已满" in error.text("zh")


async def test_a_loading_server_is_waited_for_and_its_progress_told() -> None:
    async with ScriptedChat(Refusal(503, "The model is still loading."), Reply(["ready"])) as chat:
        chat.health = [(503, {"status": "loading", "phase": "weights", "fraction": 0.4})]
        told: list[WaitingError] = []
        server = ChatServer(chat.url, sleep=Clock())
        stream = server.stream("demo", HELLO, Settings(), Answer(), lambda error, pause: told.append(error))
        assert [piece async for piece in stream] == [Piece("ready")]
        [error] = told
        assert isinstance(error, ServerLoading)
        assert (error.phase, error.fraction) == ("weights", 0.4)
        assert str(error) == "The model is still loading (weights, 40%)."
        assert error.text("zh") == "模型仍在加载（weights, 40%）。"
        await server.close()


async def test_other_servers_words_for_loading_are_understood() -> None:
    async with ScriptedChat(Reply()) as chat:
        chat.health = [
            (503, {"error": {"message": "Loading model", "code": 503}}),
            (503, {"status": "dead"}),
            (404, {}),
        ]
        server = ChatServer(chat.url)
        assert isinstance(await server.state(), ServerLoading)
        assert isinstance(await server.state(), ServerUnavailable)
        assert await server.state() is None
        await server.close()


async def test_a_context_that_is_too_long_is_told_with_its_numbers() -> None:
    message = "This model's maximum context length is 8,192 tokens. However, your messages resulted in 9000 tokens."
    error = await failure(Refusal(400, message), ContextTooLong)
    assert isinstance(error, ContextTooLong)
    assert (error.tokens, error.context) == (9000, 8192)
    assert "9,000 / 8,192" in str(error)


async def test_other_refusals_are_the_servers_own_sentence_and_not_repeated() -> None:
    async with ScriptedChat(Refusal(400, "Invalid 'temperature'."), Reply()) as chat:
        with pytest.raises(Refused, match=r"^Invalid 'temperature'\.$"):
            await ask(chat)
        assert len(chat.requests) == 1
    assert "HTTP status 418" in str(await failure(Refusal(418), Refused))


async def test_a_refused_key_tells_how_to_give_one() -> None:
    said = str(await failure(Refusal(401, "Wrong key."), KeyRefused))
    assert "got no API key that it accepts; set OPENAI_API_KEY" in said


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(["half", {"error": {"message": "The engine died."}}]), "The engine died."),
        (Reply(["half", CUT]), "closed the connection"),
        (Reply(["half", {"choices": 7}]), "not what OpenAI's API promises"),
        (Reply(["half", {"choices": [{"delta": "x"}]}]), "not what OpenAI's API promises"),
        (Reply(["half"], finish=None, usage=None, done=False), "closed the connection"),
    ],
)
async def test_a_broken_stream_keeps_what_came_and_is_not_repeated(reply: Reply, words: str) -> None:
    async with ScriptedChat(reply, Reply(["again"])) as chat:
        server, answer = ChatServer(chat.url), Answer()
        with pytest.raises(AnswerCut, match=words):
            async for _ in server.stream("demo", HELLO, Settings(), answer):
                pass
        assert answer.text == "half"
        assert len(chat.requests) == 1
        await server.close()


async def test_tokens_are_counted_by_the_server_and_unknown_where_it_cannot() -> None:
    async with ScriptedChat(Reply()) as chat:
        server = ChatServer(chat.url)
        assert await server.count_tokens("demo", HELLO) == 1
        assert await server.count_text("demo", "one two three") == 3
        await server.close()
    async with ScriptedChat(Reply(), tokenize=False) as chat:
        server = ChatServer(chat.url)
        assert await server.count_tokens("demo", HELLO) is None
        assert await server.count_tokens("demo", HELLO) is None
        assert chat.paths == ["/tokenize"]  # asked once
        await server.close()
