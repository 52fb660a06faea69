"""The bytes of every id, out of a model's files alone: an engine needs them, and has no use for a whole tokeniser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from firsttoken.errors import ModelError
from firsttoken.model.gguf_header import GGUFHeader
from firsttoken.token_bytes import Spelling

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # a GGUF file's token types that are added tokens


@dataclass(frozen=True, slots=True)
class TokenTable:
    tokens: list[bytes]  # by id; b"" where there is no such id
    added: frozenset[int]  # ids that text is never cut into by merging


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _Model(msgspec.Struct):
    # BPE and WordPiece: token -> id; Unigram: a list of [token, score] whose places are the ids
    vocab: dict[str, int] | list[tuple[str, float]]


class _TokenizerFile(msgspec.Struct):
    model: _Model
    decoder: dict[str, Any] | None
    added_tokens: list[_AddedToken] = []


_decoder = msgspec.json.Decoder(_TokenizerFile)


def token_table(path: Path) -> TokenTable:
    """For a model folder or a .gguf file. Raises ModelError where it has no vocabulary of a kind that is known."""
    if path.is_file():
        return _of_gguf(path)
    file = path / "tokenizer.json"
    try:
        content = _decoder.decode(file.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{path.name} has no tokenizer.json") from None
    except (OSError, msgspec.DecodeError) as error:
        raise ModelError(f"tokenizer.json cannot be read: {error}") from error
    vocab = content.model.vocab
    pairs = vocab.items() if isinstance(vocab, dict) else ((token, i) for i, (token, _) in enumerate(vocab))
    to_bytes = Spelling.of_decoder(content.decoder or {"type": "nothing"}).to_bytes
    found = {id_: to_bytes(token) for token, id_ in pairs}
    found |= {token.id: token.content.encode() for token in content.added_tokens}
    tokens = [found.get(id_, b"") for id_ in range(max(found, default=-1) + 1)]
    return TokenTable(tokens, frozenset(token.id for token in content.added_tokens))


def _of_gguf(path: Path) -> TokenTable:
    with GGUFHeader(path) as header:
        kind = header.get("tokenizer.ggml.model")
        texts: list[str] = header.get("tokenizer.ggml.tokens", [])
        types: list[int] = header.get("tokenizer.ggml.token_type", [])
    if kind not in ("gpt2", "llama") or not texts:
        raise ModelError(f"it has a tokeniser of type {kind!r}; gpt2 and llama are supported")
    spelling = Spelling(byte_level=kind == "gpt2", byte_fallback=kind == "llama", drops_leading_space=False)
    added = {id_ for id_, type_ in enumerate(types) if type_ in (_UNKNOWN, _CONTROL, _USER_DEFINED)}
    tokens = [text.encode() if id_ in added else spelling.to_bytes(text) for id_, text in enumerate(texts)]
    return TokenTable(tokens, frozenset(added))
