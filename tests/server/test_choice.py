"""Text between tokens and clients: the same however steps and pieces cut it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import write_tokenizer

from firsttoken.server.answer_parts import Answer, Part, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from firsttoken.server.choice import Choice, TextOptions
from firsttoken.stop_strings import StopSet
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import SequenceOutput, TokenLogprob


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = write_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return Tokenizer.load(folder)


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    ids = {tokenizer.token_bytes(i): i for i in range(tokenizer.id_limit) if i not in tokenizer.special_ids}
    return [ids[bytes([byte])] for byte in data]


def step(token_ids: list[int], *, last: bool = False, stop_id: int | None = None) -> SequenceOutput:
    return SequenceOutput(
        request_id="r",
        index=0,
        token_ids=token_ids,
        logprobs=[TokenLogprob(token_id, -1.0, 1, []) for token_id in token_ids],
        finish_reason=None if not last else "length" if stop_id is None else "stop",
        stop_token_id=stop_id,
    )


PIECES = st.lists(st.sampled_from(["a", "b", "ab", "好", "🙂", "END", "EN", "D"]), max_size=12)


@settings(max_examples=200, deadline=None)
@given(
    text=PIECES.map("".join),
    stops=st.lists(st.sampled_from(["END", "ab", "b好", "🙂", "bEN", "aa"]), max_size=3, unique=True),
    cuts=st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=60, max_size=60),
)
def test_what_is_sent_depends_on_the_text_alone_and_logprobs_join_to_it(
    tokenizer: Tokenizer, text: str, stops: list[str], cuts: list[tuple[int, bool]]
) -> None:
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    expected = text[: min(places)] if places else text
    choice = Choice(0, tokenizer, TextOptions(stop=StopSet(stops) if stops else None), wants_logprobs=True)
    ids = byte_ids(tokenizer, text.encode())
    sent, shown, told = "", b"", 0
    for size, taken in cuts:
        now, ids = ids[:size], ids[size:]
        told += choice.accept(step(now, last=not ids))
        if taken:
            piece = choice.take()
            sent += piece.text
            shown += b"".join(entry.data for entry in piece.entries)
            assert expected.startswith(sent)
            assert expected.encode().startswith(shown)
        if choice.done:
            break
    piece = choice.take()
    sent += piece.text
    shown += b"".join(entry.data for entry in piece.entries)
    assert sent == expected
    assert shown == expected.encode()
    assert choice.finish_reason == ("stop" if places else "length")
    assert told <= 1


def test_an_end_id_is_counted_and_not_shown(tokenizer: Tokenizer) -> None:
    (full_stop,) = byte_ids(tokenizer, b".")
    choice = Choice(0, tokenizer, TextOptions())
    choice.accept(step([*byte_ids(tokenizer, b"ab"), full_stop], last=True, stop_id=full_stop))
    assert (choice.take().text, choice.tokens, choice.finish_reason) == ("ab", 3, "stop")


def test_an_end_id_is_shown_where_stops_are_to_be_kept(tokenizer: Tokenizer) -> None:
    (full_stop,) = byte_ids(tokenizer, b".")
    choice = Choice(0, tokenizer, TextOptions(include_stop=True))
    choice.accept(step([*byte_ids(tokenizer, b"ab"), full_stop], last=True, stop_id=full_stop))
    assert choice.take().text == "ab."


def test_outputs_that_cross_a_stop_are_dropped(tokenizer: Tokenizer) -> None:
    choice = Choice(0, tokenizer, TextOptions(stop=StopSet(["b"])))
    assert choice.accept(step(byte_ids(tokenizer, b"ab")))
    assert not choice.accept(step(byte_ids(tokenizer, b"cd")))
    assert not choice.accept(step([], last=True))
    assert (choice.take().text, choice.tokens) == ("a", 2)


def test_the_engine_is_not_told_of_a_stop_in_its_own_last_step(tokenizer: Tokenizer) -> None:
    choice = Choice(0, tokenizer, TextOptions(stop=StopSet(["b"])))
    assert not choice.accept(step(byte_ids(tokenizer, b"ab"), last=True))
    assert choice.finish_reason == "stop"


def test_special_tokens_are_hidden_and_have_no_bytes_unless_asked_for(tokenizer: Tokenizer) -> None:
    (end,) = tokenizer.encode("<|im_end|>", add_special_tokens=False)
    for skip, text in ((True, ""), (False, "<|im_end|>")):
        choice = Choice(0, tokenizer, TextOptions(skip_special_tokens=skip), wants_logprobs=True)
        choice.accept(step([end], last=True))
        piece = choice.take()
        assert piece.text == text
        assert [entry.data for entry in piece.entries] == [text.encode()]


class Shouting:
    """Takes small letters for reasoning, digits for the arguments of calls, and keeps `held` back to the end."""

    def __init__(self, held: str = "") -> None:
        self.calls = False
        self.over = False
        self.thinking = False
        self._held = held

    def push(self, text: str) -> list[Part]:
        parts: list[Part] = []
        for char in text:
            self.thinking = char.islower()
            if char.isdigit():
                if not self.calls:
                    parts.append(ToolCallStart(0, "call_1", "f"))
                parts.append(ToolCallDelta(0, char))
                self.calls = True
                self.over = char == "9"
            else:
                parts.append(ReasoningDelta(char) if char.islower() else TextDelta(char))
        return parts

    def finish(self) -> list[Part]:
        return [TextDelta(self._held)] if self._held else []


def test_a_parser_makes_parts_of_the_text_and_neighbours_become_one(tokenizer: Tokenizer) -> None:
    choice = Choice(0, tokenizer, TextOptions(), wants_logprobs=True, parser=Shouting(held="!"))
    ids = byte_ids(tokenizer, b"abCD12e")
    choice.accept(step(ids))
    choice.accept(step([], last=True, stop_id=0))
    piece = choice.take()
    assert choice.reasoning_tokens == 3
    assert piece.text == ""
    assert piece.parts == [
        ReasoningDelta("ab"),
        TextDelta("CD"),
        ToolCallStart(0, "call_1", "f"),
        ToolCallDelta(0, "12"),
        ReasoningDelta("e"),
        TextDelta("!"),
    ]
    assert [entry.token_id for entry in piece.entries] == ids
    assert choice.finish_reason == "tool_calls"
    answer = Answer.of(piece.parts)
    assert (answer.text, answer.reasoning) == ("CD!", "abe")
    assert [(call.id, call.name, call.arguments) for call in answer.tool_calls] == [("call_1", "f", "12")]


def test_a_parser_can_end_a_choice_but_not_before_its_least_tokens(tokenizer: Tokenizer) -> None:
    for least, tokens in ((0, 3), (4, 5), (5, 5)):
        choice = Choice(0, tokenizer, TextOptions(min_tokens=least), parser=Shouting())
        told = [choice.accept(step([token_id])) for token_id in byte_ids(tokenizer, b"X1929")]
        assert told.count(True) == 1
        assert choice.tokens == tokens
        assert choice.finish_reason == "tool_calls"


def test_a_cut_call_is_no_call_and_a_stop_string_is_found_before_the_parser(tokenizer: Tokenizer) -> None:
    cut = Choice(0, tokenizer, TextOptions(), parser=Shouting())
    cut.accept(step(byte_ids(tokenizer, b"A1"), last=True))
    assert cut.finish_reason == "length"
    stopped = Choice(0, tokenizer, TextOptions(stop=StopSet(["Bc"])), parser=Shouting())
    assert stopped.accept(step(byte_ids(tokenizer, b"ABcD")))
    assert stopped.take().parts == [TextDelta("A")]
    assert stopped.finish_reason == "stop"
