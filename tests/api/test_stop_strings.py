"""Where text ends: stop strings, however tokens and chunks cut them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.live_server import LiveServer, refused

from firsttoken.config import ServerConfig

DEFAULTS = ServerConfig(tokenizer_path="")


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])


def test_nothing_of_a_stop_string_over_several_tokens_is_ever_streamed(server: LiveServer) -> None:
    server.says("The answer is 42.\n\nUser: and then?")
    chunks = server.chat_stream(stop="\n\nUser:")
    assert text_of(chunks) == "The answer is 42."
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    server.next_is_right()


def test_a_false_start_of_a_stop_string_is_sent_after_all(server: LiveServer) -> None:
    server.says("a\n\nUse it")
    chunks = server.chat_stream(stop=["\n\nUser:"])
    assert text_of(chunks) == "a\n\nUse it"
    server.next_is_right()


def test_a_false_start_at_the_very_end_is_sent_too(server: LiveServer) -> None:
    server.says("a\n\nUs")
    response = server.chat(stop=["\n\nUser:"], max_tokens=5)
    choice = response.json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("a\n\nUs", "length")
    server.next_is_right()


@pytest.mark.parametrize("stream", [False, True])
def test_the_earliest_match_in_the_text_wins_whatever_the_order_of_the_list(server: LiveServer, stream: bool) -> None:
    server.says("one two three four")
    stops = ["three", "never", "two"]
    if stream:
        assert text_of(server.chat_stream(stop=stops)) == "one "
    else:
        assert server.chat(stop=stops).json()["choices"][0]["message"]["content"] == "one "
    server.next_is_right()


def test_the_engine_is_told_to_stop_and_usage_counts_to_the_match(server: LiveServer) -> None:
    server.says("abcSTOPdef")
    server.backend.pace = 0.002
    body = server.chat(stop="STOP").json()
    assert body["usage"]["completion_tokens"] == len("abcSTOP")
    assert server.backend.stopped == [(body["id"], 0)]
    assert server.backend.aborted == []
    server.next_is_right()


def test_the_stop_string_stays_where_it_was_asked_for(server: LiveServer) -> None:
    server.says("abc.def")
    response = server.chat(stop=".", include_stop_str_in_output=True)
    assert response.json()["choices"][0]["message"]["content"] == "abc."
    server.next_is_right()


def test_stop_strings_are_not_looked_for_before_min_tokens(server: LiveServer) -> None:
    server.says("a.b.c.d.e")
    body = server.chat(stop=".", min_tokens=5).json()
    assert body["choices"][0]["message"]["content"] == "a.b.c"
    assert body["usage"]["completion_tokens"] == 6
    server.next_is_right()


def test_a_stop_string_of_one_prompt_of_several_ends_that_one_alone(server: LiveServer) -> None:
    server.backend.script = lambda request, index: server.vocabulary.of("x." if index == 0 else "yyy")
    choices = server.complete(n=2, stop=".").json()["choices"]
    assert [choice["text"] for choice in choices] == ["x", "yyy"]
    server.next_is_right()


@pytest.mark.parametrize(
    "stop",
    [
        [""],
        "",
        ["ok", ""],
        [1],
        {"a": 1},
        7,
        ["x" * (DEFAULTS.max_stop_length + 1)],
        [str(i) for i in range(DEFAULTS.max_stop + 1)],
    ],
)
def test_a_stop_that_cannot_be_meant_is_refused_by_name(server: LiveServer, stop: object) -> None:
    refused(server.chat(stop=stop), "stop")
    refused(server.complete(stop=stop), "stop")
    server.next_is_right()


def test_stop_strings_may_be_as_many_and_as_long_as_the_limits_say(server: LiveServer) -> None:
    server.says("Once, and never again.")
    many = [f"{i} of them" for i in range(DEFAULTS.max_stop - 1)] + ["never"]
    long = ["Once" + "x" * (DEFAULTS.max_stop_length - 12), "again"]
    for stop, text in ((many, "Once, and "), (long, "Once, and never ")):
        answer = server.chat(stop=stop).json()["choices"][0]
        assert (answer["message"]["content"], answer["finish_reason"]) == (text, "stop")
        assert text_of(server.chat_stream(stop=stop)) == text
    server.next_is_right()


def test_no_stop_strings_at_all_are_fine(server: LiveServer) -> None:
    assert server.chat(stop=[]).json()["choices"][0]["finish_reason"] == "stop"
    assert server.chat(stop=None).json()["choices"][0]["finish_reason"] == "stop"
