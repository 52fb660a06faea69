"""The end of a JSON object, found while its text still comes."""

from __future__ import annotations

import json
import re

_IN_STRING = re.compile(r'["\\\x00-\x1f]').search
_OUTSIDE = re.compile(r'["{}\[\]]').search


class JsonObject:
    """Follows an object from its `{` on. It looks at strings and brackets alone: whether all is valid is for a parser.

    Models write line ends into strings as they are, which JSON forbids; they come out escaped.
    """

    __slots__ = ("_depth", "_escaped", "_in_string", "closed")

    def __init__(self) -> None:
        self.closed = False
        self._depth = 0
        self._in_string = False
        self._escaped = False  # behind a backslash

    def push(self, text: str) -> tuple[str, str]:
        """What of `text` belongs to the object, and the rest behind its end."""
        assert not self.closed
        made: list[str] = []
        place = 0
        while place < len(text):
            if self._escaped:
                self._escaped = False
                made.append(text[place])
                place += 1
                continue
            found = _IN_STRING(text, place) if self._in_string else _OUTSIDE(text, place)
            if found is None:
                made.append(text[place:])
                break
            made.append(text[place : found.start()])
            place = found.end()
            made.append(self._take(found[0]))
            if self._depth == 0 and not self._in_string:
                self.closed = True
                return "".join(made), text[place:]
        return "".join(made), ""

    def _take(self, char: str) -> str:
        match char:
            case '"':
                self._in_string = not self._in_string
            case "\\":
                self._escaped = True
            case "{" | "[":
                self._depth += 1
            case "}" | "]":
                self._depth -= 1
            case _:
                return json.dumps(char)[1:-1]
        return char
