"""A small SentencePiece vocabulary in Llama 2's form: bytes as a fallback, words that begin with `▁`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from tokenizers.processors import TemplateProcessing

from tests.tokenizer.gguf_file import CONTROL, NORMAL, write_gguf_tokenizer

_UNKNOWN, _BYTE = 2, 6
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
MERGES = ["▁ h", "e l", "▁h el", "l o", "▁hel lo", "▁ w", "o r", "▁w or", "l d", "▁wor ld", "▁ ▁", "< s", "<s >", "/ s"]
MERGED = [merge.replace(" ", "") for merge in MERGES if merge != "<s >"]  # that would be the control token
LETTERS = list("▁abcdefghijklmnopqrstuvwxyz<>/!你")
TOKENS = [*SPECIAL, *BYTES, *MERGED, *LETTERS]


def write_sentencepiece_folder(folder: Path) -> None:
    vocab = {token: token_id for token_id, token in enumerate(TOKENS)}
    merges = [(left, right) for left, right in (merge.split(" ") for merge in MERGES) if left + right in MERGED]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", pair="<s> $A $B:1", special_tokens=[("<s>", 1)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def write_sentencepiece_gguf(path: Path) -> None:
    types = [_UNKNOWN, CONTROL, CONTROL, *[_BYTE] * 256] + [NORMAL] * (len(MERGED) + len(LETTERS))
    scores = [0.0] * 259 + [-float(place) for place in range(len(MERGED))] + [-1000.0] * len(LETTERS)
    ids: dict[str, Any] = {"unknown_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    write_gguf_tokenizer(path, kind="llama", tokens=TOKENS, types=types, scores=scores, **ids)
