"""What is said of a grammar that cannot be used."""

from __future__ import annotations

from firsttoken.errors import InvalidRequest

_LONGEST_REASON = 300  # characters


def refusal(reason: str) -> InvalidRequest:
    """`reason` may be the library's: its first line says what is wrong, the others show where."""
    sentence = " ".join(reason.split("\n", 1)[0].split()).rstrip(".:")[:_LONGEST_REASON]
    return InvalidRequest(f"The grammar cannot be used: {sentence}.", param="grammar", code="invalid_grammar")


def too_slow(seconds: float) -> InvalidRequest:
    """The refusal of a grammar that did not compile in time."""
    return refusal(f"it took longer than {seconds:g} s to compile; make it simpler")
