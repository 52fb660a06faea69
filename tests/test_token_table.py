"""The engine's table of bytes is the tokeniser's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from firsttoken.errors import ModelError
from firsttoken.token_table import token_table
from firsttoken.tokenizer import Tokenizer
from tests.builders import write_tokenizer
from tests.tokenizer.sentencepiece import write_sentencepiece_folder, write_sentencepiece_gguf


def check(path: Path) -> None:
    table, tokenizer = token_table(path), Tokenizer.load(path)
    assert len(table.tokens) == tokenizer.id_limit
    assert table.tokens == [tokenizer.token_bytes(id_) for id_ in range(tokenizer.id_limit)]
    assert tokenizer.special_ids <= table.added


def test_it_has_the_bytes_of_a_byte_level_folder(tmp_path: Path) -> None:
    check(write_tokenizer(tmp_path))


def test_it_has_the_bytes_of_qwens_vocabulary_whose_tags_are_added(qwen_folder: Path) -> None:
    check(qwen_folder)
    table = token_table(qwen_folder)
    assert table.tokens.index(b"<tool_call>") in table.added


def test_it_has_the_bytes_of_sentencepiece_vocabularies(tmp_path: Path) -> None:
    write_sentencepiece_folder(tmp_path / "folder")
    write_sentencepiece_gguf(tmp_path / "file.gguf")
    check(tmp_path / "folder")
    check(tmp_path / "file.gguf")


@pytest.mark.demo
def test_it_has_the_bytes_of_the_demos_file(demo_file: Path) -> None:
    check(demo_file)


@pytest.mark.parametrize("content", [None, "{", '{"model": {"vocab": {"a": 0}}, "decoder": {"type": "WordPiece"}}'])
def test_a_vocabulary_that_cannot_be_read_is_an_error_in_one_sentence(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError) as error:
        token_table(tmp_path)
    assert "\n" not in str(error.value)
