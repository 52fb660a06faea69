"""The turns of one chat, and which of them still fit the model's context."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from firsttoken.chat.chat_errors import ContextTooLong
from firsttoken.chat.chat_server import Message

Count = Callable[[Sequence[Message]], Awaitable[int | None]]
"""Tokens of messages as the model sees them; None where nobody can tell."""

_ROOM = 1024  # tokens kept free for an answer whose length is not limited, where the context is large
_KEPT = 0.7  # of the room for history is used after a cut: the next turns then begin alike, and the cache holds
_FRAME = 8  # tokens a message costs beside its text, about


@dataclass(slots=True)
class Turn:
    question: str
    answer: str


@dataclass(slots=True)
class History:
    """Everything that was said. What no longer fits is not sent, and nothing is forgotten here."""

    system: str = ""
    turns: list[Turn] = field(default_factory=list)
    first: int = 0  # turns before this one are no longer sent
    known_tokens: int | None = None  # of all that `messages` would send, as the server last told; None: not known

    def messages(self, question: str) -> list[Message]:
        """System turn, the turns that fit, and the question: the beginning is the same from turn to turn."""
        found = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns[self.first :]:
            found += [{"role": "user", "content": turn.question}, {"role": "assistant", "content": turn.answer}]
        return [*found, {"role": "user", "content": question}]

    def add(self, question: str, answer: str, tokens: int | None = None) -> None:
        """`tokens` of prompt and answer together, where the server told them."""
        self.turns.append(Turn(question, answer))
        self.known_tokens = tokens

    def cut_back(self, count: int) -> None:
        """Keeps the first `count` turns: for a question that is edited or asked again."""
        del self.turns[count:]
        self.first = min(self.first, count)
        self.known_tokens = None

    def set_system(self, text: str) -> None:
        self.system = text
        self.known_tokens = None

    def drop(self, count: int) -> int:
        """Stops sending the `count` oldest turns that are still sent; returns how many there were to drop."""
        dropped = min(count, len(self.turns) - self.first)
        self.first += dropped
        self.known_tokens = None
        return dropped


async def fit(history: History, question: str, context: int | None, answer_tokens: int | None, count: Count) -> int:
    """Drops whole oldest turns until history, question and an answer fit; returns how many went.

    The system turn and the question always stay. `context` and `answer_tokens` are in tokens; without a context nothing
    is dropped. The server is asked to count only when the room may be short. Raises ContextTooLong when the system turn
    and the question alone are too long, and then nothing is dropped: the next question may be short.
    """
    if context is None:
        return 0
    room = context - min(answer_tokens or min(_ROOM, context // 4), context // 2)
    if history.known_tokens is not None and history.known_tokens + _at_most(question) <= room:
        return 0
    before, dropped = history.first, 0
    while (tokens := await _tokens(history, question, count)) > room:
        here = len(history.turns) - history.first
        if not here:
            if tokens >= context:
                history.first = before
                raise ContextTooLong(tokens, context)
            break  # the answer will be short, but there is room for one
        dropped += history.drop(_enough(history, question, tokens, tokens - room * _KEPT))
    return dropped


async def _tokens(history: History, question: str, count: Count) -> int:
    messages = history.messages(question)
    if sum(_at_most(message["content"]) for message in messages) < 256:
        return 256  # surely; nobody need be asked
    counted = await count(messages)
    return sum(estimate(message["content"]) + _FRAME for message in messages) if counted is None else counted


def _enough(history: History, question: str, tokens: int, surplus: float) -> int:
    """How many of the oldest turns hold about `surplus` of all `tokens`; at least one."""
    # Code, digits or a small vocabulary take more tokens than estimated: what all of it takes is known.
    scale = tokens / sum(estimate(message["content"]) + _FRAME for message in history.messages(question))
    for number, turn in enumerate(history.turns[history.first :], 1):
        surplus -= scale * (estimate(turn.question) + estimate(turn.answer) + 2 * _FRAME)
        if surplus <= 0:
            return number
    return len(history.turns) - history.first


def estimate(text: str) -> int:
    """Tokens of a text where no tokeniser can be asked, on the high side: four ASCII characters, or one other, each."""
    ascii_count = sum(character.isascii() for character in text)
    return len(text) - ascii_count + -(-ascii_count // 4)


def _at_most(text: str) -> int:
    """No byte-level tokeniser makes more tokens than there are bytes."""
    return len(text.encode()) + _FRAME
