from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.errors import ModelError
from firsttoken.tokenizer import Tokenizer
from tests.tokenizer.gguf_file import CONTROL, NORMAL, tokens_and_types, write_gguf_tokenizer
from tests.tokenizer.sentencepiece import write_sentencepiece_gguf

LETTERS = ["a", "b", "Ġ", "1", "2", "ab", "Ġab", "12", "<e>"]
MERGES = ["a b", "Ġ ab", "1 2"]
TYPES = [NORMAL] * 8 + [CONTROL]

texts = st.one_of(
    st.text(),
    st.text(alphabet="helo wrd<>/s 你😀\n"),
    st.sampled_from(["<s>", "</s> x", "<|im_end|>", "e\u0301", "12345"]),
)


@pytest.fixture(scope="session")
def qwen_gguf(qwen_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("gguf") / "qwen.gguf"
    backend = tokenizers.Tokenizer.from_file(str(qwen_folder / "tokenizer.json"))
    tokens, types = tokens_and_types(backend, padding=267)
    merges = json.loads((qwen_folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["merges"]
    ids: dict[str, Any] = {"eos_token_id": 151_645, "padding_token_id": 151_643, "bos_token_id": 151_643}
    joined = [" ".join(merge) for merge in merges]
    write_gguf_tokenizer(
        path, kind="gpt2", pre="qwen2", tokens=tokens, types=types, merges=joined, add_bos_token=False, **ids
    )
    return Tokenizer.load(path)


@pytest.fixture(scope="session")
def sentencepiece_gguf(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("gguf") / "sentencepiece.gguf"
    write_sentencepiece_gguf(path)
    return Tokenizer.load(path)


def small(path: Path, **fields: Any) -> Tokenizer:
    write_gguf_tokenizer(path, **({"kind": "gpt2", "tokens": LETTERS, "types": TYPES, "merges": MERGES} | fields))
    return Tokenizer.load(path)


@given(texts)
def test_qwens_ids_are_those_of_its_own_tokeniser(qwen: Tokenizer, qwen_gguf: Tokenizer, text: str) -> None:
    for special in (True, False):
        ids = qwen_gguf.encode(text, parse_special=special)
        assert ids == qwen.encode(text, parse_special=special)
        assert qwen_gguf.decode(ids) == qwen.decode(ids)


def test_rows_that_only_pad_the_vocabulary_are_no_ids(qwen: Tokenizer, qwen_gguf: Tokenizer) -> None:
    assert qwen_gguf.id_limit == qwen.id_limit == 151_669
    assert qwen_gguf.special_ids == qwen.special_ids


@given(texts)
def test_sentencepiece_ids_are_those_of_the_folder(
    sentencepiece: Tokenizer, sentencepiece_gguf: Tokenizer, text: str
) -> None:
    for special in (True, False):
        ids = sentencepiece_gguf.encode(text, parse_special=special)
        assert ids == sentencepiece.encode(text, parse_special=special)
        assert sentencepiece_gguf.decode(ids) == sentencepiece.decode(ids)


def test_text_that_spells_a_control_token_never_becomes_it(sentencepiece_gguf: Tokenizer) -> None:
    assert sentencepiece_gguf.encode("<s>", add_special_tokens=False) == [1]
    ids = sentencepiece_gguf.encode("<s>", add_special_tokens=False, parse_special=False)
    assert 1 not in ids
    assert sentencepiece_gguf.decode(ids) == "<s>"


def test_a_pre_tokeniser_cuts_digits_as_its_name_says(tmp_path: Path) -> None:
    assert small(tmp_path / "a.gguf", pre="gpt-2").encode("12 ab") == [7, 6]
    assert small(tmp_path / "b.gguf", pre="smollm").encode("12 ab") == [3, 4, 6]


def test_llama_3_takes_whole_words_and_adds_its_first_token(tmp_path: Path) -> None:
    tokens, types = [*LETTERS, "aba"], [*TYPES, NORMAL]
    tokenizer = small(tmp_path / "a.gguf", pre="llama-bpe", bos_token_id=8, tokens=tokens, types=types)
    assert tokenizer.encode("aba") == [8, 9]  # no merge makes it
    assert small(tmp_path / "b.gguf", pre="gpt-2", tokens=tokens, types=types).encode("aba") == [5, 0]


def test_ends_are_added_as_the_file_says(tmp_path: Path) -> None:
    ids = {"bos_token_id": 8, "eos_token_id": 8}
    assert small(tmp_path / "a.gguf", **ids).encode("a") == [0]
    tokenizer = small(tmp_path / "b.gguf", **ids, add_bos_token=True, add_eos_token=True)
    assert tokenizer.encode("a") == [8, 0, 8]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (8, (8,))


def test_the_end_of_a_turn_is_an_end_id(tmp_path: Path) -> None:
    assert small(tmp_path / "a.gguf", eos_token_id=8, eot_token_id=2).eos_token_ids == (8, 2)


def test_the_template_reads_the_files_tokens(tmp_path: Path) -> None:
    tokenizer = small(tmp_path / "a.gguf", eos_token_id=8, chat_template="{{ eos_token }}ab")
    assert tokenizer.encode_chat([{"role": "user", "content": ""}]) == [8, 5]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pre": "newest"}, "cuts words as 'newest'"),
        ({"kind": "bert"}, "type 'bert'"),
        ({"kind": "llama"}, "no scores"),
    ],
)
def test_a_tokeniser_of_an_unknown_kind_is_refused(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        small(tmp_path / "a.gguf", **fields)
