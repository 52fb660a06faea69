"""One call of a tool that a model writes as a JSON object: a name and an object of arguments."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection
from typing import Any, Literal

from pydantic_core import from_json

from firsttoken.server.answer_parts import Part, ToolCallDelta, ToolCallStart
from firsttoken.server.tools.json_object import JsonObject

_MAX_HEAD = 1024  # characters before the arguments
_SPACE = r"[ \t\r\n]*"
_HEAD = re.compile(
    rf'\{{{_SPACE}(?:"type"{_SPACE}:{_SPACE}"function"{_SPACE},{_SPACE})?"name"{_SPACE}:{_SPACE}'
    rf'(?P<name>"(?:[^"\\]|\\.)*"){_SPACE},{_SPACE}"(?:arguments|parameters)"{_SPACE}:{_SPACE}(?=\{{)'
)


class Calls:
    """The calls of one answer. `streams`: a call is told of while it is written, and else once it is whole."""

    def __init__(self, offered: Collection[str], *, streams: bool) -> None:
        self.offered = offered
        self.streams = streams
        self.begun = 0  # told of
        self.whole = 0

    @property
    def all_whole(self) -> bool:
        return self.begun == self.whole > 0


class JsonCall:
    """Takes the text from `{` on. Once `state` is not `open` it takes no more.

    `broken` is what is no JSON, has no name of an offered tool or no object of arguments. What a stream has told of
    cannot be taken back (`begun`); everything else is `raw` text again.
    """

    def __init__(self, calls: Calls) -> None:
        self.state: Literal["open", "whole", "broken"] = "open"
        self.begun = False
        self._calls = calls
        self._object = JsonObject()
        self._raw: list[str] = []
        self._clean: list[str] = []
        self._head: str | None = ""  # None: found, or given up
        self._arguments: JsonObject | None = None
        self._deltas: list[str] = []  # of arguments, not told yet
        self._name = ""

    @property
    def raw(self) -> str:
        return "".join(self._raw)

    def push(self, text: str) -> tuple[list[Part], str]:
        """What is certain now, and the rest of the text, which is not the call's."""
        clean, rest = self._object.push(text)
        self._raw.append(text[: len(text) - len(rest)])
        self._clean.append(clean)
        if self._head is not None:
            clean = self._look_for_arguments(clean)
        if self._arguments is not None and not self._arguments.closed and clean:
            self._deltas.append(self._arguments.push(clean)[0])
        if self._object.closed and self.state == "open":
            self._close()
        if self.state == "broken" or not (self._calls.streams or self.state == "whole"):
            return [], rest
        return self._told(), rest

    def _look_for_arguments(self, clean: str) -> str:
        """The beginning of the arguments, once it is there."""
        assert self._head is not None
        self._head += clean
        found = _HEAD.match(self._head[:_MAX_HEAD])
        if found is None:
            if len(self._head) > _MAX_HEAD:
                self._head = None
            return ""
        behind = self._head[found.end() :]
        self._head = None
        self._name = _parsed(found["name"])
        if self._name not in self._calls.offered:
            self.state = "broken"
            return ""
        self._arguments = JsonObject()
        return behind

    def _close(self) -> None:
        value = _parsed("".join(self._clean))
        arguments = _arguments_of(value) if isinstance(value, dict) else None
        name = value.get("name") if isinstance(value, dict) else None
        if arguments is None or not isinstance(name, str) or name not in self._calls.offered:
            self.state = "broken"
            return
        self.state = "whole"
        self._calls.whole += 1
        if self._arguments is None:
            self._name = name
            self._deltas = [arguments]

    def _told(self) -> list[Part]:
        if not self._deltas:
            return []
        parts: list[Part] = []
        if not self.begun:
            self.begun = True
            self._calls.begun += 1
            parts.append(ToolCallStart(self._calls.begun - 1, f"call_{uuid.uuid4().hex[:24]}", self._name))
        if arguments := "".join(self._deltas):
            parts.append(ToolCallDelta(self._calls.begun - 1, arguments))
        self._deltas = []
        return parts


def _parsed(text: str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return None


def _arguments_of(call: dict[str, Any]) -> str | None:
    """JSON text; None where there is no object. Some models leave an empty one out, or write it as a string."""
    arguments = call.get("arguments", call.get("parameters"))
    if arguments is None:
        return "{}"
    if isinstance(arguments, str):
        return arguments if isinstance(_parsed(arguments), dict) else None
    return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else None
