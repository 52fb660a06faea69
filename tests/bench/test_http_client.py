"""The client against a server whose true timings are known, with time moved by hand: every figure is exact."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from statistics import median
from typing import Any

import pytest
from tests.bench.scripted_server import (
    HandClock,
    Refusal,
    ScriptedServer,
    Seen,
    Step,
    answer,
    done,
    empty,
    event,
    finish,
    hang_up,
    raw,
    role,
    say,
    usage,
)

from firsttoken.bench import metrics
from firsttoken.bench.http_client import Address, HttpClient
from firsttoken.bench.records import STOPPED, RequestRecord
from firsttoken.bench.stream_answer import StreamAnswer
from firsttoken.bench.token_counts import TokenEnds
from firsttoken.errors import ConfigError

Script = Sequence[Step] | Refusal


@asynccontextmanager
async def serving(*scripts: Script, clock: HandClock | None = None) -> AsyncIterator[ScriptedServer]:
    """Answers the nth streamed request by the nth script."""
    left = list(scripts)
    server = ScriptedServer(lambda seen: left.pop(0), clock)
    await server.start()
    yield server
    await server.stop()


def client_of(server: ScriptedServer, clock: Callable[[], float] = time.monotonic, timeout: float = 5.0) -> HttpClient:
    return HttpClient(Address.parse(server.url), timeout=timeout, clock=clock)


async def ask(client: HttpClient, token_ends: TokenEnds | None = None) -> RequestRecord:
    record = RequestRecord(id="a", scenario="s", phase="measured", stream=0)
    await client.post("/v1/chat/completions", b'{"stream":true}', StreamAnswer(record, token_ends))
    return record


async def record_of(script: Script, token_ends: TokenEnds | None = None) -> tuple[RequestRecord, Seen]:
    """One request under a clock that only the script moves."""
    clock = HandClock()
    async with serving(script, clock=clock) as server:
        client = client_of(server, clock)
        record = await ask(client, token_ends)
        client.close()
        return record, server.seen[0]


def check_against_truth(record: RequestRecord, seen: Seen) -> None:
    assert [(c.at, c.text) for c in record.chunks] == [(w.at, w.text) for w in seen.written]


async def test_the_first_token_is_the_first_chunk_with_content() -> None:
    record, seen = await record_of(
        [role(0.010), empty(0.020), empty(0.030), say("Hi", 0.040), say("!", 0.005), finish(), usage(5, 2), done()]
    )
    check_against_truth(record, seen)
    assert record.error is None
    assert metrics.ttft(record) == pytest.approx(0.100)
    assert metrics.tpot(record) == pytest.approx(0.005)
    assert metrics.gaps(record) == pytest.approx([0.005])


async def test_tpot_leaves_the_first_token_out_and_counts_grouped_ones() -> None:
    record, seen = await record_of(
        [
            role(),
            say("a", 0.5),
            say(" bcd", 0.030, tokens=3),
            say(" ef", 0.020, tokens=2),
            finish(),
            usage(9, 6),
            done(),
        ]
    )
    check_against_truth(record, seen)
    assert metrics.tpot(record) == pytest.approx(0.050 / 5)
    assert metrics.gaps(record) == pytest.approx([0.030, 0.020])
    assert metrics.output_tokens(record) == 6
    assert (record.token_source, sum(chunk.tokens for chunk in record.chunks)) == ("spread", 6)


async def test_e2e_ends_with_the_body() -> None:
    record, seen = await record_of(
        [say("a", 0.1), say("b", 0.1), finish(wait=0.02), usage(5, 2, wait=0.01), done(0.03)]
    )
    assert metrics.e2e(record) == pytest.approx(0.26)
    assert record.ended == pytest.approx(seen.ended)
    assert record.headers == record.sent


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_a_chunk_counts_when_its_last_byte_is_there_however_it_was_cut(size: int) -> None:
    text = "快速排序 🚀 naïve"
    data = event({"choices": [{"index": 0, "delta": {"content": text}}]})
    pieces = tuple(data[i : i + size] for i in range(0, len(data), size))
    record, seen = await record_of([Step(pieces, wait=0.1, between=0.001, text=text), finish(), usage(5, 1), done()])
    check_against_truth(record, seen)
    assert metrics.ttft(record) == pytest.approx(0.1 + 0.001 * (len(pieces) - 1))


async def test_two_events_in_one_packet_share_its_time() -> None:
    both = event({"choices": [{"delta": {"content": "a"}}]}) + event({"choices": [{"delta": {"content": "b"}}]})
    record, _ = await record_of([Step((both,), wait=0.2), finish(), usage(5, 2), done()])
    assert [chunk.text for chunk in record.chunks] == ["a", "b"]
    assert metrics.gaps(record) == [0.0]


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
async def test_every_line_end_of_the_standard_is_read(end: str) -> None:
    data = (
        f": ping{end}event: x{end[: len(end) // 2]}".encode()
        + event({"choices": [{"delta": {"content": "a"}}]}, end)
        + event("[DONE]", end)
    )
    record, _ = await record_of([Step(tuple(data[i : i + 1] for i in range(len(data))))])
    assert ([chunk.text for chunk in record.chunks], record.error) == (["a"], None)


async def test_usage_gives_prompt_output_and_cached_tokens() -> None:
    record, _ = await record_of([say("a"), finish("stop"), usage(120, 2, cached=96), done()])
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (120, 2, 96)
    assert record.finish_reason == "stop"
    assert [chunk.tokens for chunk in record.chunks] == [1]  # the end token has no text


@pytest.mark.parametrize(
    "extra",
    [
        lambda new, total: {"choice": {"token_ids": list(range(new))}},
        lambda new, total: {"choice": {"logprobs": {"content": [{"token": "x"}] * new}}},
        lambda new, total: {"usage": {"completion_tokens": total}},
        lambda new, total: {"timings": {"predicted_n": total}},
    ],
    ids=["token ids", "logprobs", "running usage", "llama.cpp timings"],
)
async def test_the_servers_own_count_of_a_chunk_wins(extra: Callable[[int, int], dict[str, Any]]) -> None:
    half_a_character = Step((event({"choices": [{"delta": {"content": ""}}]}),))
    record, _ = await record_of(
        [
            say("ab", **extra(2, 2)),
            half_a_character,
            say("cde", **extra(3, 5)),
            say("f", **extra(1, 6)),
            finish(),
            usage(5, 6),
            done(),
        ]
    )
    assert record.token_source == "server"
    assert [chunk.tokens for chunk in record.chunks] == [2, 3, 1]


async def test_tokens_whose_text_comes_later_belong_to_the_chunk_that_brings_it() -> None:
    held = Step((event({"choices": [{"delta": {"content": ""}, "token_ids": [1, 2]}]}),))
    record, _ = await record_of([held, say("🚀", choice={"token_ids": [3]}), finish(), usage(5, 3), done()])
    assert [(chunk.text, chunk.tokens) for chunk in record.chunks] == [("🚀", 3)]


async def test_a_tokenizer_counts_where_the_server_does_not() -> None:
    record, _ = await record_of([say("ab"), say("c d"), finish(), usage(5, 3), done()], lambda text: [3, 4, 5])
    assert record.token_source == "tokenizer"
    assert [chunk.tokens for chunk in record.chunks] == [0, 3]


async def test_reasoning_and_tool_calls_are_content() -> None:
    call = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}
    record, _ = await record_of(
        [
            raw(event({"choices": [{"delta": {"reasoning_content": "hm"}}]})),
            raw(event({"choices": [{"delta": call}]})),
            raw(event({"choices": [{"text": "old"}]})),
            finish("tool_calls"),
            done(),
        ]
    )
    assert [chunk.text for chunk in record.chunks] == ["hm", "f{}", "old"]
    assert record.token_source == "none"


@pytest.mark.parametrize(
    ("script", "sentence", "texts"),
    [
        (Refusal(429, {"error": {"message": "queue is full"}}), "HTTP 429: queue is full", []),
        (Refusal(400, {"message": "no", "type": "BadRequest"}), "HTTP 400: no", []),
        (Refusal(200, {"choices": []}), "the server did not stream its answer", []),
        ([say("a"), hang_up(0.1)], "the server closed the connection in the middle of the answer", ["a"]),
        ([say("a"), raw(event({"error": {"message": "boom"}}))], "error in the stream: boom", ["a"]),
        ([say("a")], "the stream ended without a finish reason and without [DONE]", ["a"]),
        ([raw(b"data: {oops\n\n")], "an event of the stream is not a completion chunk", []),
    ],
)
async def test_an_error_is_recorded_with_the_chunks_before_it(script: Script, sentence: str, texts: list[str]) -> None:
    record, _ = await record_of(script)
    assert record.error is not None
    assert record.error.startswith(sentence)
    assert [chunk.text for chunk in record.chunks] == texts
    assert record.ended >= record.sent > 0


async def test_a_server_that_falls_silent_is_given_up() -> None:
    async with serving([say("a"), say("b", wait=30.0)]) as server:
        record = await ask(client_of(server, timeout=0.2))
    assert record.error == "not a byte came for 0.2 s"
    assert [chunk.text for chunk in record.chunks] == ["a"]


async def test_a_server_that_is_not_there_is_recorded() -> None:
    record = await ask(HttpClient(Address.parse("http://127.0.0.1:9"), timeout=5.0))
    assert record.error is not None
    assert record.error.startswith("no connection to 127.0.0.1:9")
    assert record.status is None


async def test_a_request_that_is_stopped_while_it_connects_is_recorded_as_stopped() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # no TLS handshake ever comes
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    client = HttpClient(Address.parse(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"), timeout=5.0)
    record = RequestRecord(id="a", scenario="s", phase="measured", stream=0)
    task = asyncio.create_task(client.post("/", b"{}", StreamAnswer(record)))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert record.error == STOPPED
    assert record.ended >= record.sent > 0
    server.close()
    await asyncio.sleep(0.01)


async def test_connections_are_kept_and_a_dead_one_is_replaced() -> None:
    plain = answer(["a"])
    async with serving(plain, plain, [say("a"), hang_up()], plain) as server:
        client = client_of(server)
        records = [await ask(client) for _ in range(4)]
        client.close()
        assert [record.error is None for record in records] == [True, True, False, True]
        assert server.connections == 2


@asynccontextmanager
async def once(send: bytes, *, read_on: bool) -> AsyncIterator[str]:
    """A server that answers each connection's first request with `send` and closes; with `read_on`, at the second."""
    handlers: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        await reader.readuntil(b"true}")
        writer.write(send)
        if read_on:
            await reader.read(1)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await asyncio.gather(*(task for task in handlers if task is not None))


async def test_a_kept_connection_that_the_server_closed_meanwhile_is_no_error() -> None:
    data = event({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]})
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(data)
    async with once(head + data, read_on=True) as url:
        client = HttpClient(Address.parse(url), timeout=5.0)
        assert [(await ask(client)).error for _ in range(3)] == [None] * 3
        client.close()


async def test_a_body_without_length_ends_with_the_connection() -> None:
    data = event({"choices": [{"delta": {"content": "a"}}]}) + b"data: [DONE]"
    async with once(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + data, read_on=False) as url:
        record = await ask(HttpClient(Address.parse(url), timeout=5.0))
    assert (record.error, [chunk.text for chunk in record.chunks]) == (None, ["a"])


async def test_true_times_are_met_within_half_a_millisecond_on_the_real_clock() -> None:
    """Medians, and the best of three rounds: a busy machine may stop either side for milliseconds at any time."""
    rounds = [await errors_on_the_real_clock() for _ in range(3)]
    for errors in zip(*rounds, strict=True):
        assert min(errors) < 0.0005


async def errors_on_the_real_clock() -> list[float]:
    """Median errors in seconds of chunk times, TTFT and TPOT over six answers."""
    script = answer([f"w{i}" for i in range(12)], first=0.02, each=0.004)
    async with serving(*[script] * 6) as server:
        client = client_of(server)
        records = [await ask(client) for _ in range(6)]
        client.close()
        chunk_errors, ttft_errors, tpot_errors = [], [], []
        for record, seen in zip(records, server.streamed, strict=True):
            at = [written.at for written in seen.written]
            chunk_errors += [chunk.at - true for chunk, true in zip(record.chunks, at, strict=True)]
            ttft_errors.append((metrics.ttft(record) or 0) - (at[0] - seen.at))
            tpot_errors.append((metrics.tpot(record) or 0) - (at[-1] - at[0]) / 11)
    return [abs(median(errors)) for errors in (chunk_errors, ttft_errors, tpot_errors)]


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("localhost:8000/v1/", "http://localhost:8000"),
        ("https://api.example.com/x/v1", "https://api.example.com/x"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_an_address_is_read_with_and_without_the_version(url: str, root: str) -> None:
    assert Address.parse(url).root == root


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:99999", "http://a:b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is not a server's URL"):
        Address.parse(url)
