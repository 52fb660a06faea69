from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.detokenizer import Detokenizer
from firsttoken.tokenizer import Tokenizer

OUTPUTS = st.lists(st.lists(st.integers(0, 152_000), max_size=3), max_size=20)
BYTE_OUTPUTS = st.lists(st.binary(min_size=1, max_size=4).map(list), max_size=30)


def stream(tokenizer: Tokenizer, chunks: list[list[int]], *, skip: bool = True) -> str:
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip)
    pushed = [detokenizer.push(chunk) for chunk in chunks]
    text = "".join([*pushed, detokenizer.finish()])
    assert detokenizer.finish() == ""
    return text


def byte_ids(tokenizer: Tokenizer) -> list[int]:
    """The id of each of the 256 byte tokens."""
    by_bytes = {tokenizer.token_bytes(token_id): token_id for token_id in range(300)}
    return [by_bytes[bytes([byte])] for byte in range(256)]


@given(OUTPUTS, st.booleans())
def test_pushes_join_to_the_replacing_decode_of_all_bytes(qwen: Tokenizer, chunks: list[list[int]], skip: bool) -> None:
    ids = [token_id for chunk in chunks for token_id in chunk]
    data = b"".join(qwen.token_bytes(token_id) for token_id in ids if not (skip and token_id in qwen.special_ids))
    assert stream(qwen, chunks, skip=skip) == data.decode(errors="replace")
    assert qwen.decode(ids, skip_special_tokens=skip) == data.decode(errors="replace")


@given(BYTE_OUTPUTS)
def test_invalid_bytes_become_replacement_characters_as_python_has_them(
    qwen: Tokenizer, chunks: list[list[int]]
) -> None:
    ids = byte_ids(qwen)
    data = bytes([byte for chunk in chunks for byte in chunk])
    assert stream(qwen, [[ids[byte] for byte in chunk] for chunk in chunks]) == data.decode(errors="replace")


@given(st.text(), st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=3))
@settings(max_examples=50)
def test_a_stop_string_cuts_the_text_wherever_tokens_end(qwen: Tokenizer, text: str, stops: list[str]) -> None:
    ids = qwen.encode(text, parse_special=False)
    text = qwen.decode(ids)  # normalised
    detokenizer = Detokenizer(qwen, stop=stops)
    sent = "".join([detokenizer.push([token_id]) for token_id in ids]) + detokenizer.finish()
    places = [text.find(stop) for stop in stops if stop in text]
    assert sent == (text[: min(places)] if places else text)
    assert (detokenizer.stopped is not None) == bool(places)


def test_a_cut_character_waits_for_its_rest(qwen: Tokenizer) -> None:
    ids = byte_ids(qwen)
    detokenizer = Detokenizer(qwen)
    assert [detokenizer.push([ids[byte]]) for byte in "好".encode()] == ["", "", "好"]


def test_a_cut_character_at_the_end_is_one_replacement_character(qwen: Tokenizer) -> None:
    ids = byte_ids(qwen)
    assert stream(qwen, [[ids[byte]] for byte in "好".encode()[:2]]) == "\ufffd"


def test_a_prompt_that_ends_inside_a_character_is_not_sent_back(qwen: Tokenizer) -> None:
    ids = byte_ids(qwen)
    first, *rest = "好".encode()  # `first` was the prompt's last token
    text = stream(qwen, [[ids[byte]] for byte in rest] + [qwen.encode(" yes")])
    assert text == "\ufffd\ufffd yes"
    assert bytes([first]) not in text.replace("\ufffd", "").encode()


def test_special_tokens_are_skipped_or_shown(qwen: Tokenizer) -> None:
    ids = qwen.encode("a<|im_end|><tool_call>b")
    assert stream(qwen, [ids]) == "a<tool_call>b"
    assert stream(qwen, [ids], skip=False) == "a<|im_end|><tool_call>b"


def test_a_skipped_special_token_does_not_part_a_character(qwen: Tokenizer) -> None:
    ids = [byte_ids(qwen)[byte] for byte in "é".encode()]
    assert stream(qwen, [[ids[0]], [151645], [ids[1]]]) == "é"


def test_ids_that_do_not_exist_are_no_text(qwen: Tokenizer) -> None:
    assert stream(qwen, [[-1], [qwen.id_limit], [151_935], [1 << 40]]) == ""


def test_an_included_stop_string_is_sent(qwen: Tokenizer) -> None:
    detokenizer = Detokenizer(qwen, stop=["</a>"], include_stop=True)
    assert "".join([detokenizer.push([token_id]) for token_id in qwen.encode("x</a>y")]) == "x</a>"
    assert detokenizer.stopped == "</a>"


def test_an_output_keeps_the_space_that_parts_it_from_its_prompt(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("hello world", add_special_tokens=False)
    assert sentencepiece.decode(ids) == "hello world"
    assert stream(sentencepiece, [[token_id] for token_id in ids[-1:]]) == " world"


def test_byte_fallback_tokens_are_bytes(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("你😀é", add_special_tokens=False)
    assert len(ids) > 6
    assert stream(sentencepiece, [[token_id] for token_id in ids]) == " 你😀é"
    assert sentencepiece.decode(ids) == "你😀é"
