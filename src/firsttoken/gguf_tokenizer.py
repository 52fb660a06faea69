"""A tokeniser out of a GGUF file's metadata, equal to the one that the model was published with.

GGUF names the pre-tokeniser (`tokenizer.ggml.pre`) and leaves its rules to the reader, so each name that is known
here is a promise that the ids are right; other names are refused, because wrong ids make a model dull, not broken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from firsttoken.errors import ModelError
from firsttoken.model.gguf_header import GGUFHeader
from firsttoken.tokenizer_files import TokenizerFiles, set_ends

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5  # tokenizer.ggml.token_type
_PADDING = re.compile(r"\[PAD\d+\]")  # fills the vocabulary up to the output matrix's rows
_NAMED = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class _Pre:
    """How text is cut into words before byte-pair merges."""

    split: str | None = None  # a regular expression; None: GPT-2's own
    single_digits: bool = False
    nfc: bool = False
    whole_words_first: bool = False  # a word that is in the vocabulary needs no merges
    adds_bos: bool = False


_GPT2, _DIGITS = _Pre(), _Pre(single_digits=True)
_LLAMA3 = _Pre(split=rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}", whole_words_first=True, adds_bos=True)
_QWEN2 = _Pre(split=rf"{_WORDS}|\p{{N}}|{_REST}", nfc=True)
_PRE_TOKENIZERS = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}


def load_gguf(path: Path) -> TokenizerFiles:
    """Raises ModelError where the file has no tokeniser or one of a kind that is not known here."""
    with GGUFHeader(path) as header:
        kind = header.get("tokenizer.ggml.model")
        tokens: list[str] = header.get("tokenizer.ggml.tokens", [])
        types: list[int] = header.get("tokenizer.ggml.token_type", [])
        if not kind or not tokens:
            raise ModelError(f"{path} holds no tokeniser.")
        if not types:
            types = [1] * len(tokens)
        tokens = _without_padding(tokens, types)
        if kind == "gpt2":
            backend, adds_bos = _byte_level(header, tokens)
        elif kind == "llama":
            backend, adds_bos = _sentencepiece(header, tokens, types)
        else:
            raise ModelError(f"{path} has a tokeniser of type {kind!r}; gpt2 and llama are supported.")
        backend.add_tokens(
            [
                AddedToken(token, special=token_type != _USER_DEFINED, normalized=False)
                for token, token_type in zip(tokens, types, strict=False)
                if token_type in (_UNKNOWN, _CONTROL, _USER_DEFINED)
            ]
        )
        ids = {name: header.get(f"tokenizer.ggml.{key}_token_id") for name, key in _NAMED.items()}
        named = {name: tokens[token_id] for name, token_id in ids.items() if token_id is not None}
        set_ends(
            backend,
            bos=named.get("bos_token") if header.get("tokenizer.ggml.add_bos_token", adds_bos) else None,
            eos=named.get("eos_token") if header.get("tokenizer.ggml.add_eos_token", False) else None,
        )
        ends = (ids["eos_token"], header.get("tokenizer.ggml.eot_token_id"))
        template = header.get("tokenizer.chat_template")
        return TokenizerFiles(
            backend=backend,
            named_tokens=named,
            eos_token_ids=tuple(dict.fromkeys(token_id for token_id in ends if token_id is not None)),
            templates={"default": template} if template else {},
        )


def _without_padding(tokens: list[str], types: Sequence[int]) -> list[str]:
    size = len(tokens)
    while size and (types[size - 1] == _UNUSED or _PADDING.fullmatch(tokens[size - 1])):
        size -= 1
    return tokens[:size]


def _byte_level(header: GGUFHeader, tokens: list[str]) -> tuple[tokenizers.Tokenizer, bool]:
    name = header.get("tokenizer.ggml.pre", "default")
    pre = _PRE_TOKENIZERS.get(name)
    if pre is None:
        raise ModelError(
            f"{header.path} cuts words as {name!r}, which is not known here ({', '.join(_PRE_TOKENIZERS)} are); "
            "use the model's safetensors folder."
        )
    merges = [tuple(merge.split(" ", 1)) for merge in header.get("tokenizer.ggml.merges", [])]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.BPE(vocab, merges, ignore_merges=pre.whole_words_first))
    steps: list[pre_tokenizers.PreTokenizer] = []
    if pre.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if pre.split is not None:
        steps.append(pre_tokenizers.Split(Regex(pre.split), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre.split is None))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    if pre.nfc:
        backend.normalizer = normalizers.NFC()
    return backend, pre.adds_bos


def _sentencepiece(header: GGUFHeader, tokens: list[str], types: Sequence[int]) -> tuple[tokenizers.Tokenizer, bool]:
    scores: list[float] = header.get("tokenizer.ggml.scores", [])
    if len(scores) < len(tokens):
        raise ModelError(f"{header.path} holds no scores for its SentencePiece vocabulary.")
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    unknown = header.get("tokenizer.ggml.unknown_token_id")
    mergeable = [token for token, token_type in zip(tokens, types, strict=False) if token_type == _NORMAL]
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab,
            _merges(mergeable, vocab, scores),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = header.get("tokenizer.ggml.add_space_prefix", True)
    to_words: list[normalizers.Normalizer] = [normalizers.Prepend("▁")] if prefix else []
    backend.normalizer = normalizers.Sequence([*to_words, normalizers.Replace(" ", "▁")])
    to_text: list[decoders.Decoder] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        to_text.append(decoders.Strip(" ", 1, 0))
    backend.decoder = decoders.Sequence(to_text)
    return backend, True


def _merges(tokens: Sequence[str], vocab: dict[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """The merges that a SentencePiece vocabulary implies: any two neighbours that make a piece, best score first.

    Control tokens are no pieces: text that spells one must never become it.
    """
    pieces = set(tokens)
    found = []
    for token in tokens:
        order = (-scores[vocab[token]], vocab[token])
        for place in range(1, len(token)):
            left, right = token[:place], token[place:]
            if left in pieces and right in pieces:
                found.append((order, vocab[left], vocab[right], left, right))
    found.sort()
    return [(left, right) for *_, left, right in found]
