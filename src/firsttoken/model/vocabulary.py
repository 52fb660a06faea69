"""How many ids a model's tokeniser really has: rows of the output matrix beyond that are padding, never sampled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from firsttoken.errors import ModelError
from firsttoken.model.config import load_config
from firsttoken.model.gguf_header import GGUFHeader

_UNUSED = 5  # a GGUF token type


class _AddedToken(msgspec.Struct):
    id: int


class _Model(msgspec.Struct):
    # BPE and WordPiece: token -> id; Unigram: a list of [token, score] whose places are the ids
    vocab: dict[str, int] | list[Any]


class _TokenizerFile(msgspec.Struct):
    model: _Model
    added_tokens: list[_AddedToken] = []


_decoder = msgspec.json.Decoder(_TokenizerFile)


def token_id_limit(path: str | Path) -> int:
    """One more than the tokeniser's highest id, for a model folder or a .gguf file; builds no tokeniser.

    A folder without tokenizer.json (a config alone, for dummy weights) has the config's vocab_size. Raises ModelError.
    """
    path = Path(path)
    if path.is_file():
        with GGUFHeader(path) as header:
            size, kinds = header.length("tokenizer.ggml.tokens"), header.get("tokenizer.ggml.token_type", [])
        if not size:
            return load_config(path).vocab_size
        while size and size <= len(kinds) and kinds[size - 1] == _UNUSED:  # what a converter padded with
            size -= 1
        return size
    vocab_size = load_config(path).vocab_size
    file = path / "tokenizer.json"
    if not file.is_file():
        return vocab_size
    try:
        content = _decoder.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ModelError(f"{file} is not a tokenizer.json that can be read: {error}.") from error
    vocab = content.model.vocab
    highest = max(vocab.values(), default=-1) if isinstance(vocab, dict) else len(vocab) - 1
    highest = max([highest, *(token.id for token in content.added_tokens)])
    return min(highest + 1, vocab_size)
