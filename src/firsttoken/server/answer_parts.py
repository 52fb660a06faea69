"""What an answer is made of: text, reasoning and calls of tools, in the order in which the model wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A call begins. Calls of one answer count from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of the call that began last: its arguments, JSON text, join to one object."""

    index: int
    arguments: str


Part = TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta


class AnswerParser(Protocol):
    """Reads one answer's text as it comes. Made for one choice of one request."""

    @property
    def calls(self) -> bool:
        """Whether the answer, as far as it went, called tools, and every call that it began is whole."""

    @property
    def over(self) -> bool:
        """Whether nothing that may still come is wanted: the sequence can end here."""

    @property
    def thinking(self) -> bool:
        """Whether what was pushed last belongs to the model's thoughts."""

    def push(self, text: str) -> list[Part]:
        """What is certain now. Never fails: what is no reasoning and no call is text."""

    def finish(self) -> list[Part]:
        """What was held back, once the text is over. Called once."""


@dataclass(slots=True)
class ToolCall:
    """One call, as far as it went."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class Answer:
    """A whole answer, put together. What did not come is empty."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Answer:
        answer = cls()
        for part in merged(parts):
            match part:
                case TextDelta(text):
                    answer.text += text
                case ReasoningDelta(text):
                    answer.reasoning += text
                case ToolCallStart(_, id, name):
                    answer.tool_calls.append(ToolCall(id, name, ""))
                case ToolCallDelta(index, arguments):
                    answer.tool_calls[index].arguments += arguments
        return answer


def merged(parts: Sequence[Part]) -> list[Part]:
    """The same, with neighbours of one kind as one."""
    if len(parts) == 1:
        return list(parts)
    made: list[Part] = []
    for (kind, index), group in groupby(parts, _kind):
        if kind is TextDelta:
            made.append(TextDelta("".join([part.text for part in group if isinstance(part, TextDelta)])))
        elif kind is ReasoningDelta:
            made.append(ReasoningDelta("".join([part.text for part in group if isinstance(part, ReasoningDelta)])))
        elif kind is ToolCallDelta:
            deltas = [part.arguments for part in group if isinstance(part, ToolCallDelta)]
            made.append(ToolCallDelta(index, "".join(deltas)))
        else:
            made.extend(group)
    return made


def _kind(part: Part) -> tuple[type[Part], int]:
    return type(part), part.index if isinstance(part, ToolCallStart | ToolCallDelta) else 0
