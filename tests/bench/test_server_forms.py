"""The ways in which servers stream one and the same answer, as their sources write it: all give the same record."""

from __future__ import annotations

from typing import Any

import pytest
from tests.bench.scripted_server import Step, done, event, finish, raw, role, say, usage
from tests.bench.test_http_client import client_of, record_of, serving

from firsttoken.bench import metrics
from firsttoken.bench.records import RequestRecord
from firsttoken.bench.stream_answer import StreamAnswer


def part(choice: dict[str, Any], **extra: Any) -> Step:
    return raw(event({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, **choice}], **extra}))


def vllm(text: str, reason: str | None, count: int | None, key: str = "delta") -> Step:
    """`count`: with stream_options.continuous_usage_stats."""
    said: Any = {"content": text} if key == "delta" else text
    running = {} if count is None else {"usage": {"prompt_tokens": 7, "completion_tokens": count}}
    return part({key: said, "logprobs": None, "finish_reason": reason, "stop_reason": None}, **running)


def sglang(reason: str | None = None, **delta: str | None) -> Step:
    rest = {"reasoning_content": None, "tool_calls": None}
    choice = {"delta": {"role": None, "content": None, **rest, **delta}, "finish_reason": reason, "matched_stop": None}
    return part(choice, usage=None)


COUNTS = {"prompt_tokens": 7, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 0}}
FORMS = {
    "vllm chat": [role(), vllm("abc", None, None), vllm("d", "length", None), usage(7, 4, cached=0), done()],
    "vllm chat, continuous usage": [
        part({"delta": {"role": "assistant", "content": ""}, "finish_reason": None}, usage={"completion_tokens": 0}),
        vllm("abc", None, 3),
        vllm("d", "length", 4),
        usage(7, 4, cached=0),
        done(),
    ],
    "vllm completions": [
        vllm("abc", None, None, "text"),
        vllm("d", "length", None, "text"),
        usage(7, 4, cached=0),
        done(),
    ],
    "sglang chat": [
        sglang(role="assistant", content=""),
        sglang(content="abc"),
        sglang(content="d"),
        sglang("length"),
        usage(7, 4, cached=0),
        done(),
    ],
    "llama.cpp, whose last chunk has timings and no usage": [
        part({"delta": {"role": "assistant", "content": None}, "finish_reason": None}),
        part({"delta": {"content": "abc"}, "finish_reason": None}),
        part({"delta": {"content": "d"}, "finish_reason": None}),
        part({"delta": {}, "finish_reason": "length"}, timings={"prompt_n": 7, "cache_n": 0, "predicted_n": 4}),
        done(),
    ],
    "a last chunk with usage and a choice": [
        say("abc"),
        say("d"),
        part({"delta": {}, "finish_reason": "length"}, usage=COUNTS),
        done(),
    ],
    "a usage chunk whose choices are null": [
        say("abc"),
        say("d"),
        finish("length"),
        raw(event({"choices": None, "usage": COUNTS})),
        done(),
    ],
}


@pytest.mark.parametrize("form", FORMS)
async def test_every_servers_form_of_a_stream_gives_the_same_record(form: str) -> None:
    record, _ = await record_of(FORMS[form])
    assert record.error is None
    assert [(chunk.text, chunk.tokens) for chunk in record.chunks] == [("abc", 3), ("d", 1)]
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (7, 4, 0)
    assert record.finish_reason == "length"


async def test_without_any_count_an_answer_that_ended_by_its_length_has_what_was_asked_for() -> None:
    script = [role(), say("abc"), say("d"), finish("length"), done()]  # as llama-cpp-python streams
    records = [RequestRecord(id="", scenario="s", phase="measured", stream=0, max_tokens=n) for n in (6, None)]
    async with serving(script, script) as server:
        client = client_of(server)
        for record in records:
            await client.post("/v1/chat/completions", b'{"stream":true}', StreamAnswer(record))
        client.close()
    assert [record.token_source for record in records] == ["asked", "none"]
    assert [metrics.output_tokens(record) for record in records] == [6, 2]
