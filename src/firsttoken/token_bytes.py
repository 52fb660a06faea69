"""The bytes that each token id stands for, so that text can be put together one token at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from firsttoken.errors import ModelError

if TYPE_CHECKING:
    import tokenizers

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WORD_START = "▁"  # how SentencePiece writes a space


def byte_alphabet() -> dict[str, int]:
    """Character -> byte of byte-level BPE: printable Latin-1 stands for itself, the other bytes for U+0100 upwards.

    From GPT-2 (Radford et al. 2019), whose vocabulary may hold no whitespace or control characters.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(rest)}


_OUTSIDE = "\uffff"  # no byte of Latin-1
_BYTES = dict.fromkeys(range(256), _OUTSIDE) | {ord(char): byte for char, byte in byte_alphabet().items()}


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a vocabulary writes bytes as text; read from the tokeniser's decoder."""

    byte_level: bool  # GPT-2's alphabet; otherwise SentencePiece's
    byte_fallback: bool  # <0x0A> is a byte (SentencePiece only)
    drops_leading_space: bool  # a whole text's first space is the tokeniser's own (SentencePiece only)

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer) -> Spelling:
        """Raises ModelError where the decoder is of no kind that language models use."""
        none: dict[str, Any] = {"type": "nothing"}
        return cls.of_decoder(none if backend.decoder is None else json.loads(backend.decoder.__getstate__()))

    @classmethod
    def of_decoder(cls, decoder: dict[str, Any]) -> Spelling:
        """From the decoder as a tokenizer.json has it. Raises ModelError as `of`."""
        steps: list[dict[str, Any]] = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
        kinds = {step["type"]: step for step in steps}
        if "ByteLevel" in kinds:
            return cls(byte_level=True, byte_fallback=False, drops_leading_space=False)
        replaces = kinds.get("Replace", {}).get("pattern") == {"String": _WORD_START}
        if not replaces and "Metaspace" not in kinds:
            raise ModelError(
                f"The tokeniser decodes with {decoder['type']}, which is not supported; "
                "byte-level and SentencePiece vocabularies are."
            )
        metaspace = kinds.get("Metaspace", {})
        drops = kinds.get("Strip", {}).get("start", 0) > 0 or metaspace.get("prepend_scheme", "never") != "never"
        return cls(byte_level=False, byte_fallback="ByteFallback" in kinds, drops_leading_space=drops)

    def to_bytes(self, token: str) -> bytes:
        """The bytes of a token of the vocabulary (not of an added token: those are plain text)."""
        if self.byte_level:
            try:
                return token.translate(_BYTES).encode("latin-1")
            except UnicodeEncodeError:  # not of the alphabet: stands for itself
                return token.encode()
        if self.byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return token.replace(_WORD_START, " ").encode()


class TokenBytes(dict[int, bytes]):
    """id -> bytes, filled as ids are first seen (a whole table of 150,000 would cost each worker 0.2 s at start).

    Ids that the tokeniser does not have, and `hidden` ones, stand for no bytes.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        spelling: Spelling,
        added: Mapping[int, str],
        *,
        hidden: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__((token_id, text.encode()) for token_id, text in added.items())
        self.update((token_id, b"") for token_id in hidden)
        self._backend = backend
        self._spelling = spelling

    def __missing__(self, token_id: int) -> bytes:
        token = self._backend.id_to_token(token_id) if 0 <= token_id < 1 << 32 else None
        if token is None:
            return b""  # not kept: the table never outgrows the vocabulary
        found = self[token_id] = self._spelling.to_bytes(token)
        return found
