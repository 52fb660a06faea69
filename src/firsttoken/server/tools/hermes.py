"""Calls as Qwen3, Qwen2.5 and the Hermes models write them: `<tool_call>`, a JSON object, `</tool_call>`, between text.

The form: https://github.com/NousResearch/Hermes-Function-Calling
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from firsttoken.server.answer_parts import Part
from firsttoken.server.tag_search import TagSearch
from firsttoken.server.tools.json_call import Calls, JsonCall
from firsttoken.server.tools.spoken import Spoken

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesParser:
    """An `AnswerParser`. A model may leave the closing tag out, or put several objects between two tags."""

    def __init__(self, offered: Collection[str], *, streams: bool, single: bool) -> None:
        self._calls = Calls(offered, streams=streams)
        self._single = single
        self._spoken = Spoken()
        self._opening = TagSearch(OPEN)
        self._state: Callable[[str, list[Part]], str] = self._text
        self._held = ""  # of the form, not known yet to belong to a call
        self._call: JsonCall | None = None

    @property
    def calls(self) -> bool:
        return self._calls.all_whole

    @property
    def over(self) -> bool:
        return self._single and self._calls.whole > 0

    @property
    def thinking(self) -> bool:
        return False

    def push(self, text: str) -> list[Part]:
        parts: list[Part] = []
        while text and not self.over:
            text = self._state(text, parts)
        return parts

    def finish(self) -> list[Part]:
        parts: list[Part] = []
        if self._call is not None:
            self._give_up(self._call, parts)
        elif self._state == self._lead:
            parts += self._spoken.say(self._held)
        parts += self._spoken.say(self._opening.finish())
        return parts + self._spoken.finish()

    def _text(self, text: str, parts: list[Part]) -> str:
        before, behind = self._opening.push(text)
        parts += self._spoken.say(before)
        if behind is None:
            return ""
        self._held = OPEN
        self._state = self._lead
        return behind

    def _lead(self, text: str, parts: list[Part]) -> str:
        """Behind an opening tag."""
        rest = text.lstrip()
        self._held += text[: len(text) - len(rest)]
        if not rest:
            return ""
        if rest.startswith("{"):
            self._call = JsonCall(self._calls)
            self._state = self._inside
        else:
            parts += self._spoken.say(self._held)
            self._state = self._text
        return rest

    def _inside(self, text: str, parts: list[Part]) -> str:
        assert self._call is not None
        told, rest = self._call.push(text)
        parts += told
        if self._call.begun:
            self._spoken.call()
        if self._call.state == "whole":
            self._call, self._held, self._state = None, "", self._tail
        elif self._call.state == "broken":
            self._give_up(self._call, parts)
        return rest

    def _give_up(self, call: JsonCall, parts: list[Part]) -> None:
        if not call.begun:
            parts += self._spoken.say(self._held + call.raw)
        self._call, self._held, self._state = None, "", self._tail if call.begun else self._text

    def _tail(self, text: str, parts: list[Part]) -> str:
        """Behind a whole call."""
        self._held = (self._held + text).lstrip()
        if self._held.startswith(CLOSE):
            rest = self._held.removeprefix(CLOSE)
            self._state = self._text
        elif CLOSE.startswith(self._held):
            return ""
        else:
            rest = self._held
            self._state = self._lead if rest.startswith("{") else self._text
        self._held = ""
        return rest
