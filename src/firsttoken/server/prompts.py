"""Prompts as token ids that fit the context: encoded off the event loop where long, refused or cut where too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from firsttoken.config import Truncation
from firsttoken.errors import InvalidRequest
from firsttoken.server.error_handlers import wrong_value
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import EngineInfo

Result = TypeVar("Result")

_INLINE_CHARS = 4096  # shorter texts are encoded in well under a millisecond
_RESERVED_TOKENS = 1024  # for the answer to a cut prompt where no length was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What one request leaves its prompt."""

    context: int  # tokens, prompt and answer together
    wanted: int | None  # tokens of answer that must fit; None: one is enough
    kind: Literal["messages", "prompt"]
    keep: int | None = None  # truncate_prompt_tokens: the last so many; -1: as many as fit
    truncate: Truncation = "none"  # what is cut of a prompt that does not fit

    @property
    def for_prompt(self) -> int:
        return self.context - max(1, self.wanted or 0)

    @property
    def after_cut(self) -> int:
        """Tokens that a cut prompt may have."""
        if self.wanted is not None:
            return self.for_prompt
        return self.context - max(1, min(_RESERVED_TOKENS, self.context // 4))

    @property
    def limit(self) -> int | None:
        """Beyond it the tokenizer refuses early, without encoding the whole of a huge text."""
        return self.context if self.truncate == "none" and self.keep is None else None

    def refusal(self, tokens: int) -> InvalidRequest:
        """In OpenAI's words."""
        limit = f"This model's maximum context length is {self.context} tokens"
        wanted = max(1, self.wanted or 0)  # an answer, or a score, takes a token at least
        if self.kind == "messages" and self.wanted is None:
            text = (
                f"{limit}. However, your messages resulted in {tokens} tokens. "
                "Please reduce the length of the messages."
            )
        elif self.kind == "messages":
            text = (
                f"{limit}. However, you requested {tokens + wanted} tokens ({tokens} in the messages, "
                f"{wanted} in the completion). Please reduce the length of the messages or completion."
            )
        else:
            text = (
                f"{limit}, however you requested {tokens + wanted} tokens ({tokens} in your prompt; "
                f"{wanted} for the completion). Please reduce your prompt; or completion length."
            )
        return InvalidRequest(text, param=self.kind, code="context_length_exceeded")


@dataclass(frozen=True, slots=True)
class Encoded:
    ids: list[int]
    dropped: int = 0  # tokens cut away


class Prompts:
    """Turns what clients send into token ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    async def text(self, prompt: str, room: Room, info: EngineInfo, *, add_special_tokens: bool = True) -> Encoded:
        """Raises InvalidRequest for an empty prompt (unless the model has a token to begin with) and a too long one."""

        def encode() -> list[int]:
            return self._tokenizer.encode(prompt, add_special_tokens=add_special_tokens, limit=room.limit)

        ids = await _off_loop(encode, len(prompt))
        if not ids and info.bos_token_id is not None:
            ids = [info.bos_token_id]
        if not ids:
            raise wrong_value("prompt", "it may not be empty")
        return self._fit(ids, room)

    def ids(self, prompt: list[int], room: Room, info: EngineInfo) -> Encoded:
        """Raises InvalidRequest for ids that the model does not have."""
        check_ids(prompt, info, "prompt")
        return self._fit(list(prompt), room)

    async def chat(self, messages: list[dict[str, Any]], room: Room, **options: Any) -> Encoded:
        """`options` go to the tokenizer's `encode_chat`. Raises InvalidRequest where the template refuses them."""

        def encode() -> Encoded:
            ids = self._tokenizer.encode_chat(messages, limit=room.limit, **options)
            if room.truncate == "middle" and room.keep is None and len(ids) > room.for_prompt:
                return self._keep_ends(ids, messages, room, options)
            return self._fit(ids, room)

        chars = sum(len(text) for message in messages for text in _texts(message))
        chars += len(msgspec.json.encode(options.get("tools")))
        return await _off_loop(encode, chars)

    def _fit(self, ids: list[int], room: Room) -> Encoded:
        total = len(ids)
        if room.keep is not None and room.keep > 0:
            ids = ids[-room.keep :]
        elif room.keep == -1 and total > room.for_prompt and room.after_cut > 0:
            ids = ids[-room.after_cut :]
        if len(ids) <= room.for_prompt:
            return Encoded(ids, total - len(ids))
        if room.truncate == "none" or room.keep is not None or room.after_cut <= 0:
            raise room.refusal(len(ids))
        size = room.after_cut
        if room.truncate == "left":
            ids = ids[-size:]
        elif room.truncate == "right":
            ids = ids[:size]
        else:
            ids = ids[: size - size // 2] + ids[total - size // 2 :]
        return Encoded(ids, total - len(ids))

    def _keep_ends(
        self, ids: list[int], messages: list[dict[str, Any]], room: Room, options: dict[str, Any]
    ) -> Encoded:
        """The system turn, or the tools that stand where it would, and all from the last question on, with the newest
        of what lies between that fits.

        Where each ends is read off by rendering the conversation's beginnings: their ids are prefixes of the whole's.
        """
        first = 1 if messages[0]["role"] in ("system", "developer") else 0
        questions = [i for i, message in enumerate(messages) if message["role"] == "user"]
        last = questions[-1] if questions else len(messages) - 1
        if first:
            head = self._shared_prefix(ids, messages[:first], options)
        else:
            head = self._turns_before(ids, messages[last:], options) if options.get("tools") else 0
        before = self._shared_prefix(ids, messages[:last], options) if last > first else head
        room_between = room.after_cut - head - (len(ids) - before)
        if room_between < 0 or room.after_cut <= 0:
            raise room.refusal(len(ids))
        kept = ids[:head] + ids[before - room_between :]
        return Encoded(kept, len(ids) - len(kept))

    def _turns_before(self, ids: list[int], messages: list[dict[str, Any]], options: dict[str, Any]) -> int:
        """How much a template prints before any message: up to the last end of a turn in what both begin with."""
        shared = self._shared_prefix(ids, messages, options)
        ends = self._tokenizer.eos_token_ids
        return next((place + 1 for place in range(shared - 1, -1, -1) if ids[place] in ends), 0)

    def _shared_prefix(self, ids: list[int], messages: list[dict[str, Any]], options: dict[str, Any]) -> int:
        closed = {**options, "add_generation_prompt": False, "continue_final_message": False}
        try:
            start = self._tokenizer.encode_chat(messages, **closed)
        except InvalidRequest:  # some templates want a user's turn
            return 0
        for i, (a, b) in enumerate(zip(ids, start, strict=False)):
            if a != b:
                return i
        return min(len(ids), len(start))


def check_ids(ids: Sequence[int], info: EngineInfo, param: str) -> None:
    """Raises InvalidRequest naming the first id that the model does not have."""
    if ids and (min(ids) < 0 or max(ids) >= info.token_id_limit):
        bad = next(token_id for token_id in ids if not 0 <= token_id < info.token_id_limit)
        raise wrong_value(
            param, f"token id {str(bad)[:20]} is not one of this model's (0 to {info.token_id_limit - 1})"
        )


def ids_to_count(encode: Callable[[], list[int]], limit: int) -> list[int]:
    """What `encode` gives. The tokenizer speaks of the context, but it is a bound of counting that was met."""
    try:
        return encode()
    except InvalidRequest as error:
        if error.code != "context_length_exceeded":
            raise
        sentence = f"more than {limit} tokens are not counted at once; send them in parts"
        raise wrong_value(error.param or "prompt", sentence) from None


async def _off_loop(work: Callable[[], Result], chars: int) -> Result:
    return work() if chars <= _INLINE_CHARS else await asyncio.to_thread(work)


def _texts(message: dict[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [part.get("text") or part.get("refusal") or "" for part in content or ()]
