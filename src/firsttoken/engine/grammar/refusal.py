"""What is said of a grammar that cannot be used."""

from __future__ import annotations

import re

from firsttoken.errors import InvalidRequest, QueueFull

_LONGEST_REASON = 300  # characters
_PLACE = re.compile(r"^(?:at )?(\d+)\((\d+)\): ")


def refusal(reason: str, *, has_places: bool = False) -> InvalidRequest:
    """`reason` may be the library's: the first line says what is wrong, an "error:" further down what exactly.

    `has_places`: lines and columns are those of the request's grammar, not of what was made around it.
    """
    first, *rest = reason.split("\n")
    first = _PLACE.sub(r"line \1, column \2: " if has_places else "", first.split("; following special tokens", 1)[0])
    first = first.removeprefix("failed to compile JSON schema: ")
    exactly = [line.strip().removeprefix("error: ") for line in rest if line.strip().startswith("error: ")]
    if exactly:
        place = first.removesuffix("regex parse error:").rstrip(": ")
        first = f"{place or 'invalid regex'}: {exactly[0]}"
    sentence = " ".join(first.split()).rstrip(".:")[:_LONGEST_REASON]
    return InvalidRequest(f"The grammar cannot be used: {sentence}.", param="grammar", code="invalid_grammar")


def too_slow(seconds: float) -> InvalidRequest:
    """The refusal of a grammar that did not compile in time."""
    return refusal(f"it took longer than {seconds:g} s to compile; make it simpler")


def too_many() -> QueueFull:
    """Of a grammar whose turn to be compiled did not come."""
    return QueueFull("Too many grammars are waiting to be compiled; send the request again soon.", retry_after=1)
