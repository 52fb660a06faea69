"""GGUF files that hold a tokeniser and no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import tokenizers

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def write_gguf_tokenizer(
    path: Path,
    *,
    kind: str,
    tokens: Sequence[str],
    types: Sequence[int],
    merges: Sequence[str] = (),
    scores: Sequence[float] = (),
    **fields: Any,
) -> None:
    """`fields` go under `tokenizer.ggml.`; `chat_template` goes where templates go."""
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(list(tokens))
    writer.add_token_types(list(types))
    if merges:
        writer.add_token_merges(list(merges))
    if scores:
        writer.add_token_scores(list(scores))
    for key, value in fields.items():
        if key == "chat_template":
            writer.add_chat_template(value)
        elif isinstance(value, bool):
            writer.add_bool(f"tokenizer.ggml.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"tokenizer.ggml.{key}", value)
        else:
            writer.add_string(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tokens_and_types(backend: tokenizers.Tokenizer, *, padding: int = 0) -> tuple[list[str], list[int]]:
    """All tokens of a tokeniser by id, with `padding` rows behind them as converters write them."""
    added = backend.get_added_tokens_decoder()
    size = backend.get_vocab_size(with_added_tokens=True)
    tokens, types = [], []
    for token_id in range(size):
        token = added.get(token_id)
        tokens.append(backend.id_to_token(token_id) or "")
        types.append(NORMAL if token is None else CONTROL if token.special else USER_DEFINED)
    tokens += [f"[PAD{size + row}]" for row in range(padding)]
    return tokens, types + [UNUSED] * padding
