"""The text around calls, without the whitespace that only sets the calls apart."""

from __future__ import annotations

from firsttoken.server.answer_parts import Part, TextDelta


class Spoken:
    """Holds whitespace back until it is known whether text follows it, or a call."""

    __slots__ = ("_behind_a_call", "_space")

    def __init__(self) -> None:
        self._space = ""
        self._behind_a_call = False

    def say(self, text: str) -> list[Part]:
        body = text.rstrip()
        if not body:
            self._space += text
            return []
        lead, self._space = self._space, text[len(body) :]
        said = (lead + body).lstrip() if self._behind_a_call else lead + body
        self._behind_a_call = False
        return [TextDelta(said)]

    def call(self) -> None:
        """A call came here."""
        self._space = ""
        self._behind_a_call = True

    def finish(self) -> list[Part]:
        space, self._space = self._space, ""
        return [TextDelta(space)] if space and not self._behind_a_call else []
