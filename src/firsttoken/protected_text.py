"""Users' text that looks like special tokens, kept apart from the template's own.

A chat template mixes both into one string, and an `<|im_end|>` that a user wrote would end the turn. So before the
template runs, every special token's text inside the messages is replaced by one private-use character, which no
template takes for anything; once the template's own special tokens are found, it is put back and encoded as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_FIRST, _LAST = 0xF0000, 0xFFFFD  # Supplementary Private Use Area-A
_PRIVATE = re.compile(f"[{chr(_FIRST)}-{chr(_LAST)}]")


def scrub(text: str) -> str:
    """Valid Unicode: pairs of surrogates joined, lone ones (JSON allows `"\\ud800"`) as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class SpecialPatterns:
    """How to find special tokens, and their beginnings and ends, in text. One a tokeniser."""

    def __init__(self, specials: Sequence[str]) -> None:
        by_length = sorted(specials, key=len, reverse=True)
        self.whole = re.compile("|".join(map(re.escape, by_length)) or r"(?!)")
        self.longest = len(by_length[0]) if by_length else 0
        self.first_chars = {special[0] for special in specials}
        self.last_chars = {special[-1] for special in specials}
        self.beginnings = {special[:size] for special in specials for size in range(1, len(special))}
        self.ends = {special[size:] for special in specials for size in range(1, len(special))}

    def beginning_at_end(self, text: str) -> int:
        """Where a special token begins that the text's end (without whitespace, which templates trim) cuts off."""
        body = text.rstrip()
        window = max(0, len(body) - self.longest + 1)
        for place in range(window, len(body)):
            if body[place] in self.first_chars and body[place:] in self.beginnings:
                return place
        return len(text)

    def end_at_beginning(self, text: str) -> int:
        """Where a special token ends that began before the text; 0 where none does."""
        start = len(text) - len(text.lstrip())
        for place in range(min(len(text), start + self.longest - 1), start, -1):
            if text[place - 1] in self.last_chars and text[start:place] in self.ends:
                return place
        return 0


class ProtectedText:
    """One conversation's stand-ins. `protect` what goes into the template, `restore` what comes out."""

    def __init__(self, patterns: SpecialPatterns, *inputs: Any) -> None:
        self._patterns = patterns
        self._inputs = inputs  # all that the template can see; no stand-in may occur in it
        self._free: Iterator[int] | None = None
        self._stand_ins: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """The character that stands for `text` (which may be empty) from now on."""
        if text not in self._stand_ins:
            if self._free is None:
                taken = {ord(char) for found in _strings(self._inputs) for char in _PRIVATE.findall(found)}
                self._free = (code for code in range(_FIRST, _LAST) if code not in taken)
            self._stand_ins[text] = chr(next(self._free))
        return self._stand_ins[text]

    def protect(self, value: Any) -> Any:
        """A copy of `value` with every string in it made safe, keys as well."""
        if isinstance(value, str):
            return self._protect(scrub(value))
        if isinstance(value, Mapping):
            return {self.protect(key): self.protect(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.protect(item) for item in value]
        return value

    def restore(self, text: str) -> str:
        if not self._stand_ins:
            return text
        return text.translate({ord(mark): original for original, mark in self._stand_ins.items()})

    def _protect(self, text: str) -> str:
        patterns = self._patterns
        text = patterns.whole.sub(lambda match: self.mark(match[0]), text)
        # Two texts side by side must not make a special token either, nor one with what the template writes around it.
        place = patterns.beginning_at_end(text)
        if place < len(text):
            body = text.rstrip()
            text = text[:place] + self.mark(text[place : len(body)]) + text[len(body) :]
        place = patterns.end_at_beginning(text)
        if place:
            start = len(text) - len(text.lstrip())
            text = text[:start] + self.mark(text[start:place]) + text[place:]
        return text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
