"""How many ids a tokeniser has, read without building it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken

from firsttoken.errors import ModelError
from firsttoken.model.vocabulary import token_id_limit
from tests.builders import (
    VOCAB_SIZE,
    tiny_config,
    tiny_model_folder,
    tiny_tensors,
    tiny_tokenizer,
    write_checkpoint,
    write_tokenizer,
)
from tests.model.gguf_files import write_gguf


def test_added_tokens_count_and_padding_does_not(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    limit = token_id_limit(tiny_model_folder(tmp_path))
    assert limit == tokenizer.get_vocab_size(with_added_tokens=True)
    assert tokenizer.get_vocab_size(with_added_tokens=False) < limit < VOCAB_SIZE


def test_more_ids_than_rows_are_cut_to_the_rows(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken(f"<extra_{i}>") for i in range(VOCAB_SIZE)])
    write_tokenizer(folder, tokenizer)
    assert token_id_limit(folder) == VOCAB_SIZE


def test_a_unigram_vocabulary_is_a_list(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path)
    content = {"model": {"type": "Unigram", "vocab": [["a", -1.0], ["b", -2.0]]}, "added_tokens": [{"id": 2}]}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert token_id_limit(folder) == 3


def test_without_a_tokeniser_every_row_is_an_id(tmp_path: Path) -> None:
    assert token_id_limit(write_checkpoint(tmp_path, tiny_config(), tiny_tensors(tiny_config()))) == VOCAB_SIZE


def test_a_damaged_tokeniser_is_named(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path)
    (folder / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(ModelError, match=r"tokenizer\.json that can be read"):
        token_id_limit(folder)


def test_a_gguf_file_counts_its_tokens_without_the_unused_ones_at_the_end(tmp_path: Path) -> None:
    config, path = tiny_config("qwen2"), tmp_path / "model.gguf"
    tokens = [f"t{i}" for i in range(VOCAB_SIZE)]
    kinds = [1] * 10 + [5] + [1] * 389 + [5] * (VOCAB_SIZE - 400)
    write_gguf(path, config, tiny_tensors(config), tokens=tokens, token_types=kinds)
    assert token_id_limit(path) == 400
    write_gguf(path, config, tiny_tensors(config))
    assert token_id_limit(path) == VOCAB_SIZE
