"""From the bytes of a streamed chat completion to pieces of an answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, NamedTuple

from firsttoken.chat.answer import Answer
from firsttoken.chat.chat_errors import AnswerCut

_NOT_THE_API = "its stream is not what OpenAI's API promises."


class Piece(NamedTuple):
    """Text of one event, as it is to be shown."""

    text: str
    thought: bool = False  # a thinking model's reasoning, not its answer


async def events(chunks: AsyncIterable[bytes]) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a server-sent event stream up to [DONE] or its end. Raises AnswerCut.

    Lines end at line feeds alone: a text may hold U+2028 and other characters that Python takes for line ends too.
    """
    pending = b""
    async for chunk in chunks:
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            yield _event(data)


def take(event: dict[str, Any], answer: Answer) -> list[Piece]:
    """Adds one event to the answer and returns its text, if any. Raises AnswerCut for one that is no chunk."""
    try:
        return _take(event, answer)
    except (AttributeError, TypeError):
        raise AnswerCut(_NOT_THE_API) from None


def _take(event: dict[str, Any], answer: Answer) -> list[Piece]:
    if usage := event.get("usage"):
        answer.prompt_tokens = usage.get("prompt_tokens")
        answer.completion_tokens = usage.get("completion_tokens")
        answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    pieces: list[Piece] = []
    for choice in event.get("choices") or []:
        delta = choice.get("delta") or {}
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            thought = whole(thought)
            answer.reasoning += thought
            pieces.append(Piece(thought, thought=True))
        if text := delta.get("content"):
            text = whole(text)
            answer.text += text
            pieces.append(Piece(text))
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
    return pieces


def _event(data: bytes) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise AnswerCut(_NOT_THE_API)
    if event.get("error"):
        raise AnswerCut(message_of(event))
    return event


def whole(text: str) -> str:
    """Without halves of characters, which can be neither shown nor sent: JSON and terminals can both give them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def message_of(body: Any) -> str:
    """The sentence of an error object; empty where there is none."""
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return str(error.get("message") or "")
    return str(error or "")
