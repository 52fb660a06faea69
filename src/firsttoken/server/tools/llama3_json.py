"""Calls as Llama 3.1 and 3.2 write them: the whole answer is a JSON object, or several with semicolons between.

The form: https://github.com/meta-llama/llama-models/blob/main/models/llama3_1/prompt_format.md
"""

from __future__ import annotations

from collections.abc import Collection

from firsttoken.server.answer_parts import Part
from firsttoken.server.tools.json_call import Calls, JsonCall
from firsttoken.server.tools.spoken import Spoken


class Llama3JsonParser:
    """An `AnswerParser`. What does not begin as a call is text to its end; so is all from a broken call on."""

    def __init__(self, offered: Collection[str], *, streams: bool, single: bool) -> None:
        self._calls = Calls(offered, streams=streams)
        self._single = single
        self._spoken = Spoken()
        self._call: JsonCall | None = None
        self._speaks = False

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
            if self._speaks:
                parts += self._spoken.say(text)
                break
            text = self._between(text, parts) if self._call is None else self._inside(self._call, text, parts)
        return parts

    def finish(self) -> list[Part]:
        parts: list[Part] = []
        if self._call is not None:
            self._give_up(self._call, parts)
        return parts + self._spoken.finish()

    def _between(self, text: str, parts: list[Part]) -> str:
        rest = text.lstrip()
        parts += self._spoken.say(text[: len(text) - len(rest)])
        if rest.startswith("{"):
            self._call = JsonCall(self._calls)
        elif rest.startswith(";") and self._calls.whole:
            return rest[1:]
        elif rest:
            self._speaks = True
        return rest

    def _inside(self, call: JsonCall, text: str, parts: list[Part]) -> str:
        told, rest = call.push(text)
        parts += told
        if call.begun:
            self._spoken.call()
        if call.state == "whole":
            self._call = None
        elif call.state == "broken":
            self._give_up(call, parts)
        return rest

    def _give_up(self, call: JsonCall, parts: list[Part]) -> None:
        if not call.begun:
            parts += self._spoken.say(call.raw)
        self._call = None
        self._speaks = True
