"""Calls in a model's text: the same however the text is cut, and never more than was really called."""

from __future__ import annotations

import json
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.server.answer_parts import Answer, AnswerParser, Part, TextDelta, ToolCallDelta, ToolCallStart, merged
from firsttoken.server.tools.hermes import HermesParser
from firsttoken.server.tools.llama3_json import Llama3JsonParser

OFFERED = {"add", "get_weather", "查天气"}


def hermes(*, streams: bool = True, single: bool = False) -> AnswerParser:
    return HermesParser(OFFERED, streams=streams, single=single)


def llama(*, streams: bool = True, single: bool = False) -> AnswerParser:
    return Llama3JsonParser(OFFERED, streams=streams, single=single)


def read(parser: AnswerParser, *pieces: str) -> list[Part]:
    parts = [part for piece in pieces for part in parser.push(piece)]
    return merged(parts + parser.finish())


def calls_of(parts: list[Part]) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in Answer.of(parts).tool_calls]


def text_of(parts: list[Part]) -> str:
    return Answer.of(parts).text


def tagged(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call>"


CALL = '{"name": "add", "arguments": {"a": 1, "b": {"c": ["好🙂", "}\\"]</tool_call>"]}}}'
ARGUMENTS = {"a": 1, "b": {"c": ["好🙂", '}"]</tool_call>']}}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


@settings(max_examples=150, deadline=None)
@given(
    calls=st.lists(st.tuples(st.sampled_from(sorted(OFFERED)), OBJECTS), min_size=1, max_size=3),
    before=st.sampled_from(["", "Let me look.", "< <tool", "a <tool_cal b"]),
    after=st.sampled_from(["", "Done.", "<tool_call", "</tool_call>"]),
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=20),
    streams=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
def test_hermes_calls_come_whole_however_the_text_is_cut(
    calls: list[tuple[str, Any]], before: str, after: str, cuts: list[int], streams: bool, indent: int | None
) -> None:
    def written(name: str, arguments: Any) -> str:
        return tagged(json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False, indent=indent))

    text = before + "\n" + "\n".join(written(*call) for call in calls) + "\n" + after
    pieces, rest = [], text
    for size in cycle(cuts):
        if not rest:
            break
        pieces.append(rest[:size])
        rest = rest[size:]
    parser = hermes(streams=streams)
    parts = read(parser, *pieces)
    assert calls_of(parts) == calls
    assert text_of(parts) == before + after
    assert [part.index for part in parts if isinstance(part, ToolCallStart)] == list(range(len(calls)))
    assert parser.calls


def test_arguments_stream_as_the_model_writes_them() -> None:
    parser = hermes()
    seen = []
    for char in "Hm.\n" + tagged(CALL):
        seen += parser.push(char)
    assert seen[:2] == [TextDelta("H"), TextDelta("m")]
    assert isinstance(seen[3], ToolCallStart)
    deltas = [part.arguments for part in seen if isinstance(part, ToolCallDelta)]
    assert len(deltas) > 40
    assert "".join(deltas) == CALL.partition('"arguments": ')[2][:-1]
    assert parser.calls
    assert parser.finish() == []


def test_an_unstreamed_call_has_the_models_own_text_as_arguments() -> None:
    (call,) = Answer.of(read(hermes(streams=False), tagged(CALL))).tool_calls
    assert call.arguments == CALL.partition('"arguments": ')[2][:-1]
    assert json.loads(call.arguments) == ARGUMENTS
    assert call.id.startswith("call_")


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"arguments": {"a": 1}, "name": "add"}', {"a": 1}),
        ('{"name": "add", "arguments": "{\\"a\\": 1}"}', {"a": 1}),
        ('{"name": "add"}', {}),
        ('{"name": "add", "arguments": null}', {}),
        ('{"name": "add", "arguments": {"text": "two\nlines\t."}}', {"text": "two\nlines\t."}),
        ('{"type": "function", "name": "add", "parameters": {"a": 1}}', {"a": 1}),
        ('{"name": "add", "arguments": {"a": 1}, "id": 7}', {"a": 1}),
    ],
)
@pytest.mark.parametrize("streams", [True, False])
def test_forms_that_models_slip_into_are_calls_too(written: str, arguments: Any, streams: bool) -> None:
    for parser, text in ((hermes(streams=streams), tagged(written)), (llama(streams=streams), written)):
        assert calls_of(read(parser, *text)) == [("add", arguments)]
        assert parser.calls


def test_a_missing_closing_tag_and_two_objects_in_one_tag_are_forgiven() -> None:
    for text in ("<tool_call>" + CALL, tagged(CALL)[:-4], tagged(CALL) + "\n"):
        parser = hermes()
        assert calls_of(read(parser, *text)) == [("add", ARGUMENTS)]
        assert parser.calls
    parts = read(hermes(), *tagged(CALL + "\n" + CALL))
    assert calls_of(parts) == [("add", ARGUMENTS)] * 2
    assert text_of(parts) == ""


BROKEN = [
    '{"name": "rm", "arguments": {}}',
    '{"name": "rm"}',
    '{"name": "add", "arguments": [1]}',
    '{"name": "add", "arguments": "[1]"}',
    '{"name": 3, "arguments": {}}',
    '{"name": ["add"], "arguments": {}}',
    '{"arguments": {}, "name": {"add": 1}}',
    '{"name": add}',
    '{"call": "add"}',
]


@pytest.mark.parametrize("written", BROKEN)
@pytest.mark.parametrize("streams", [True, False])
def test_a_broken_call_is_text_and_the_next_one_still_counts(written: str, streams: bool) -> None:
    parser = hermes(streams=streams)
    parts = read(parser, *("So:\n" + tagged(written) + "\n" + tagged(CALL)))
    assert text_of(parts) == "So:\n" + tagged(written)
    assert calls_of(parts) == [("add", ARGUMENTS)]
    assert parser.calls


BROKEN_INSIDE = ['{"name": "add", "arguments": {"a": tru}}', '{"name": "add", "arguments": {"a": "\\x"}}']


@pytest.mark.parametrize("written", BROKEN_INSIDE)
def test_arguments_that_are_no_json_are_text_or_in_a_stream_no_whole_call(written: str) -> None:
    whole = hermes(streams=False)
    parts = read(whole, *tagged(written))
    assert parts == [TextDelta(tagged(written))]
    assert not whole.calls
    streamed = hermes()
    parts = read(streamed, *(tagged(written) + "\nHm."))
    assert text_of(parts) == "Hm."
    assert not streamed.calls, "the stream's end must not say that it called"


def test_a_call_that_is_cut_is_text_or_in_a_stream_a_beginning() -> None:
    cut = "Now:\n" + tagged(CALL)[:60]
    whole = hermes(streams=False)
    assert read(whole, *cut) == [TextDelta(cut)]
    assert not whole.calls
    streamed = hermes()
    parts = read(streamed, *cut)
    assert parts[0] == TextDelta("Now:")
    assert isinstance(parts[1], ToolCallStart)
    assert isinstance(parts[2], ToolCallDelta)
    assert CALL.partition('"arguments": ')[2].startswith(parts[2].arguments)
    assert not streamed.calls
    for early in ("<tool_call>", "<tool_call>\n", '<tool_call>\n{"name"', "<tool_c", "<tool_call>Hm"):
        assert text_of(read(hermes(), *early)) == early


def test_text_without_calls_is_left_as_it_is() -> None:
    for text in ("\n Hello \n\n", " ", "", "a < b </tool_call>", "x" * 50):
        for streams in (True, False):
            parser = hermes(streams=streams)
            assert text_of(read(parser, *text)) == text
            assert not parser.calls
            assert text_of(read(llama(streams=streams), *text)) == text


@pytest.mark.parametrize("make", [hermes, llama])
def test_where_one_call_is_wanted_the_answer_is_over_with_it(make: Any) -> None:
    parser = make(single=True)
    first = CALL if make is llama else tagged(CALL)
    for char in first:
        if parser.over:
            break
        parser.push(char)
    assert parser.over
    assert parser.push(";" + first) == []
    assert parser.calls


def test_a_llama_calls_with_its_whole_answer() -> None:
    parser = llama()
    parts = read(parser, *(" " + CALL + ";\n" + CALL))
    assert calls_of(parts) == [("add", ARGUMENTS)] * 2
    assert text_of(parts) == ""
    assert parser.calls
    for text in ("See " + CALL, '{"a": 1}', CALL[:40].replace("add", "rm"), "[1]"):
        parser = llama(streams=False)
        assert text_of(read(parser, *text)) == text
        assert not parser.calls


def test_long_arguments_take_time_that_grows_with_their_length_alone() -> None:
    """Every character its own piece: rescanning what came before would take minutes here."""
    arguments = json.dumps({"code": "x = [1, 2]\n" * 20_000})
    parser = hermes()
    parts = read(parser, *tagged(f'{{"arguments": {arguments}, "name": "add"}}'))
    assert calls_of(parts) == [("add", json.loads(arguments))]


TAGS = ["<tool_call>", "</tool_call>", "<tool", "\n", " ", "Hm", "好"]
JSON = ["{", "}", "}}", "[", '"', "\\", ":", ",", ";", "tru", "null", '{"a": 1}', '"name": "add"', '"arguments": ']
BITS = st.sampled_from([*TAGS, *JSON, '{"name": "add", "arguments": {', CALL])


@settings(max_examples=300, deadline=None)
@given(
    bits=st.lists(BITS, max_size=14).map("".join),
    make=st.sampled_from([hermes, llama]),
    streams=st.booleans(),
    single=st.booleans(),
)
def test_whatever_a_model_writes_is_read_the_same_in_any_pieces(
    bits: str, make: Any, streams: bool, single: bool
) -> None:
    def both(*pieces: str) -> tuple[str, list[tuple[str, str]], bool]:
        parser = make(streams=streams, single=single)
        answer = Answer.of(read(parser, *pieces))
        return answer.text, [(call.name, call.arguments) for call in answer.tool_calls], parser.calls

    text, calls, called = both(*bits)
    if calls and not called:
        assert streams, "what was told of a call that broke cannot be taken back"
        return
    assert both(bits) == (text, calls, called)
    assert all(isinstance(json.loads(arguments), dict) for _, arguments in calls)
    if not calls:
        assert text == bits
