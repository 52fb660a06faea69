"""The forms in which models write calls, and which one a chat template teaches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from firsttoken.server.answer_parts import AnswerParser
from firsttoken.server.tools import hermes
from firsttoken.server.tools.hermes import HermesParser
from firsttoken.server.tools.llama3_json import Llama3JsonParser


class MakesParser(Protocol):
    def __call__(self, offered: Collection[str], *, streams: bool, single: bool) -> AnswerParser:
        """`offered`: names that count. `streams`: calls are told of as they are written. `single`: one call ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """One form: how it is read, and what a grammar writes around name and arguments."""

    parser: MakesParser
    opening: str | None = None  # the tag before a call; without one the whole answer is calls
    closing: str | None = None
    separator: str  # between calls
    arguments: str  # the key


HERMES = CallForm(parser=HermesParser, opening=hermes.OPEN, closing=hermes.CLOSE, separator="\n", arguments="arguments")
LLAMA3_JSON = CallForm(parser=Llama3JsonParser, separator="; ", arguments="parameters")
FORMS = {"hermes": HERMES, "llama3_json": LLAMA3_JSON}


def form_of(template: str) -> CallForm | None:
    """The form that a template with tools asks the model for; None where it is none of these."""
    plain = template.replace('\\"', '"')
    if hermes.OPEN in plain:
        return HERMES if '"arguments": ' in plain else None  # Qwen3-Coder puts XML between the same tags
    return LLAMA3_JSON if '"parameters": ' in plain else None
