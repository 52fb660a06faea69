"""What a model thinks before it answers, told apart from the answer: `<think>`, thoughts, `</think>`."""

from __future__ import annotations

from firsttoken.server.answer_parts import AnswerParser, Part, ReasoningDelta, TextDelta
from firsttoken.server.tag_search import TagSearch

OPEN, CLOSE = "<think>", "</think>"


class ReasoningParser:
    """An `AnswerParser` around the one that reads the answer itself (None: it is plain text).

    `thinks`: the prompt has opened the thoughts already. Else they begin with the tag, as the answer's first text;
    some models write it again.
    Whitespace at both ends of the thoughts, and before the answer, belongs to the form. Thoughts that are not `shown`
    are dropped. Nothing in them is a call.
    """

    def __init__(self, inner: AnswerParser | None, *, thinks: bool, shown: bool) -> None:
        self._inner = inner
        self._shown = shown
        self._state = self._beginning
        self._untagged = self._thoughts if thinks else self._answer
        self._closing = TagSearch(CLOSE)
        self._held = ""  # whitespace, or what may be the opening tag
        self._thought = False

    @property
    def calls(self) -> bool:
        return self._inner is not None and self._inner.calls

    @property
    def over(self) -> bool:
        return self._inner is not None and self._inner.over

    @property
    def thinking(self) -> bool:
        return self._state == self._thoughts

    def push(self, text: str) -> list[Part]:
        return self._state(text)

    def finish(self) -> list[Part]:
        parts: list[Part] = []
        if self._state == self._beginning and self._held:
            held, self._held, self._state = self._held, "", self._untagged
            parts += self._untagged(held)
        if self._state == self._thoughts:
            parts += self._think(self._closing.finish())
        return parts + (self._inner.finish() if self._inner is not None else [])

    def _beginning(self, text: str) -> list[Part]:
        self._held += text
        begun = self._held.lstrip()
        if begun.startswith(OPEN):
            self._held, self._state = "", self._thoughts
            return self._thoughts(begun.removeprefix(OPEN))
        if OPEN.startswith(begun):
            return []
        held, self._held, self._state = self._held, "", self._untagged
        return self._untagged(held)

    def _thoughts(self, text: str) -> list[Part]:
        before, behind = self._closing.push(text)
        parts = self._think(before)
        if behind is None:
            return parts
        self._held, self._state = "", self._gap
        return parts + self._gap(behind)

    def _think(self, text: str) -> list[Part]:
        body = text.rstrip()
        if not body:
            self._held += text
            return []
        said, self._held = self._held + body, text[len(body) :]
        if not self._thought:
            said, self._thought = said.lstrip(), True
        return [ReasoningDelta(said)] if self._shown else []

    def _gap(self, text: str) -> list[Part]:
        rest = text.lstrip()
        if not rest:
            return []
        self._state = self._answer
        return self._answer(rest)

    def _answer(self, text: str) -> list[Part]:
        return [TextDelta(text)] if self._inner is None else self._inner.push(text)
