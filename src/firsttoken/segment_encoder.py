"""Rendered chats to ids, segment by segment, so that an unchanged history is not encoded again each turn."""

from __future__ import annotations

import json
import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, pre_tokenizers

_ENTRY_BYTES = 300  # what Python keeps for one entry besides text and ids, measured
_Key = tuple[bool, str]


def as_text_only(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A tokeniser over the same vocabulary (shared, not copied) that reads special tokens' text as plain text."""
    twin = tokenizers.Tokenizer(backend.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if (value := getattr(backend, part)) is not None:
            setattr(twin, part, value)
    twin.add_tokens([token for _, token in sorted(backend.get_added_tokens_decoder().items())])
    twin.encode_special_tokens = True
    return twin


def as_continuation(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer | None:
    """A text-only tokeniser for what is not the beginning of a text, where that differs: SentencePiece may put a space
    in front of a text's first word alone. None where it does not."""
    state = json.loads(backend.pre_tokenizer.__getstate__()) if backend.pre_tokenizer is not None else {}
    steps: list[dict[str, Any]] = state.get("pretokenizers", [state])
    firsts = [step for step in steps if step.get("prepend_scheme") == "first"]
    if not firsts:
        return None
    for step in firsts:
        step["prepend_scheme"] = "never"
    pre_tokenizer = pre_tokenizers.Metaspace()
    pre_tokenizer.__setstate__(json.dumps(state).encode())
    twin = as_text_only(backend)
    twin.pre_tokenizer = pre_tokenizer
    return twin


class SegmentEncoder:
    """Encodes text between special tokens, and keeps the ids of up to `cache_bytes` of it, least recently used out.

    Cutting at special tokens changes no id: tokenisers do it too before anything else. Safe to call from threads.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        text_only: tokenizers.Tokenizer,
        added: Mapping[int, AddedToken],
        *,
        cache_bytes: int = 16 << 20,
    ) -> None:
        self._text_only = text_only
        self._continuation = as_continuation(backend) or text_only
        self._special_ids = {token.content: token_id for token_id, token in added.items() if token.special}
        specials = sorted((token for token in added.values() if token.special), key=lambda token: -len(token.content))
        self._split = re.compile("(" + ("|".join(map(_pattern, specials)) or r"(?!)") + ")").split
        self._ids: OrderedDict[_Key, array[int]] = OrderedDict()
        self._room = self._cache_bytes = cache_bytes
        self._lock = threading.Lock()

    def split(self, text: str) -> list[str]:
        """[text, special token, text, special token, ..., text]; a special token with the whitespace that it eats."""
        return self._split(text)

    def encode(self, pieces: Sequence[str]) -> list[int]:
        """The ids of `split`'s pieces (texts may have been changed since)."""
        # A text's first word is marked only where it begins the whole text, as tokenisers do it.
        keys = [(place == 0, piece) for place, piece in enumerate(pieces[::2])]
        found = self._look_up(keys)
        for first, encoder in ((True, self._text_only), (False, self._continuation)):
            missing = list(dict.fromkeys(key for key in keys if key[0] == first and key[1] and key not in found))
            if missing:
                encoded = encoder.encode_batch_fast([text for _, text in missing], add_special_tokens=False)
                fresh = {key: array("I", encoding.ids) for key, encoding in zip(missing, encoded, strict=True)}
                found |= fresh
                self._keep(fresh)
        ids: list[int] = []
        for place, key in enumerate(keys):
            if place:
                special = pieces[2 * place - 1]
                ids.append(self._special_ids[special if special in self._special_ids else special.strip()])
            if key[1]:
                ids.extend(found[key])
        return ids

    def _look_up(self, keys: Sequence[_Key]) -> dict[_Key, array[int]]:
        found = {}
        with self._lock:
            for key in keys:
                if (ids := self._ids.get(key)) is not None:
                    self._ids.move_to_end(key)
                    found[key] = ids
        return found

    def _keep(self, fresh: Mapping[_Key, array[int]]) -> None:
        with self._lock:
            for key, ids in fresh.items():
                size = _size(key, ids)
                if key in self._ids or size > self._cache_bytes:
                    continue
                self._ids[key] = ids
                self._room -= size
                while self._room < 0:
                    self._room += _size(*self._ids.popitem(last=False))


def _size(key: _Key, ids: array[int]) -> int:
    return _ENTRY_BYTES + 4 * len(key[1]) + 4 * len(ids)


def _pattern(token: AddedToken) -> str:
    pattern = re.escape(token.content)
    if token.single_word:
        pattern = rf"(?<!\w){pattern}(?!\w)"
    return (r"\s*" if token.lstrip else "") + pattern + (r"\s*" if token.rstrip else "")
