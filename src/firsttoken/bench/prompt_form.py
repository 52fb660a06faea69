"""How a server is given prompts of an exact length: a set of words of one token each, learnt from the server itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from firsttoken.bench.common_words import COMMON_WORDS
from firsttoken.bench.scenario import Endpoint
from firsttoken.errors import ConfigError, Unavailable

_ENOUGH = 64  # words: 16 drawn at random then hold 96 bits, so no two prompts share a KV block
_SAMPLE = 8


class PromptForm(msgspec.Struct, kw_only=True, frozen=True):
    """What a random prompt is made of. `overhead` is what the server adds: a BOS token, or the chat template."""

    kind: Literal["ids", "text", "chat"]
    words: list[str]
    ids: list[int] = []  # of " " + word, in the order of `words`; only for "ids"
    overhead: int = 0  # tokens

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.kind == "chat" else "/v1/completions"


class Asks(Protocol):
    """Plain questions to a server. Each returns None where the server does not have the endpoint or refuses."""

    def tokenize(self, text: str) -> list[int] | None:
        """Ids of a text without special tokens."""

    def prompt_tokens(self, kind: Literal["ids", "text", "chat"], prompt: str | list[int]) -> int | None:
        """The usage's prompt tokens for a prompt that is answered with one token."""


def learn_form(asks: Asks, endpoint: Endpoint = "auto") -> PromptForm:
    """Finds the most exact form that the server takes. Raises Unavailable where it takes none."""
    if endpoint != "chat":
        form = _ids_form(asks) or _text_form(asks, "text")
        if form is not None:
            return form
        if endpoint == "completions":
            raise Unavailable(
                "the server does not answer on /v1/completions, where this scenario sends prompts: set it to chat"
            )
    form = _text_form(asks, "chat")
    if form is None:
        raise Unavailable(
            "the server answers neither on /v1/completions nor on /v1/chat/completions with a usage that "
            "counts the prompt's tokens, so no prompt of an exact length can be made for it"
        )
    return form


def _ids_form(asks: Asks) -> PromptForm | None:
    known = _one_token_ids(asks, COMMON_WORDS)
    if len(known) < _ENOUGH:
        return None
    sample = list(known.values())[:_SAMPLE]
    if asks.prompt_tokens("ids", sample) != len(sample):
        return None
    return PromptForm(kind="ids", words=list(known), ids=list(known.values()))


def _one_token_ids(asks: Asks, words: Sequence[str]) -> dict[str, int]:
    """Those words that are one token after a space, with their ids. Halves the list until each part is clean."""
    if not words:
        return {}
    ids = asks.tokenize("".join(f" {word}" for word in words))
    if ids is None:
        return {}
    if len(ids) == len(words):  # each word has at least one, so each has exactly one
        return dict(zip(words, ids, strict=True))
    if len(words) == 1:
        return {}
    middle = len(words) // 2
    return _one_token_ids(asks, words[:middle]) | _one_token_ids(asks, words[middle:])


def _text_form(asks: Asks, kind: Literal["text", "chat"]) -> PromptForm | None:
    sample = COMMON_WORDS[:_SAMPLE]
    count = asks.prompt_tokens(kind, text_of(sample))
    twice = asks.prompt_tokens(kind, text_of([*sample, *sample]))
    if count is None or twice is None:
        return None
    overhead = 2 * count - twice
    words: list[str] = []
    for start in range(0, len(COMMON_WORDS), 32):
        part = COMMON_WORDS[start : start + 32]
        if asks.prompt_tokens(kind, text_of(part)) == len(part) + overhead:
            words += part
    if len(words) < _ENOUGH:
        raise ConfigError(
            "the server's tokenizer cuts common English words, so prompts of an exact length cannot be made "
            "for it: give your own prompts with --dataset FILE"
        )
    return PromptForm(kind=kind, words=words, overhead=overhead)


def text_of(words: Sequence[str]) -> str:
    """Words as a text whose every word follows a space."""
    return "".join(f" {word}" for word in words)
