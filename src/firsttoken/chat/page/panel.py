"""The settings panel: what its fields hold, and what a request gets from them.

A field that is empty leaves its value to the server, which takes the model's recommended one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from firsttoken.chat.language import Language, Words
from firsttoken.chat.page import words
from firsttoken.chat.settings import Settings

_SEED = 2**53 - 1  # the largest whole number that a browser keeps exactly


class Field(NamedTuple):
    """One number of the panel. The range is the API's."""

    name: str
    label: Words
    hint: Words
    low: float
    high: float
    whole: bool = False
    open_below: bool = False  # the lower end itself is not allowed


FIELDS = (
    Field("temperature", words.TEMPERATURE, words.TEMPERATURE_HINT, 0, 2),
    Field("top_p", Words("Top-p", "Top-p"), words.TOP_P_HINT, 0, 1, open_below=True),
    Field("top_k", Words("Top-k", "Top-k"), words.TOP_K_HINT, 0, 1_000_000, whole=True),
    Field("min_p", Words("Min-p", "Min-p"), words.MIN_P_HINT, 0, 1),
    Field("presence_penalty", words.PRESENCE, words.PENALTY_HINT, -2, 2),
    Field("frequency_penalty", words.FREQUENCY, words.PENALTY_HINT, -2, 2),
    Field("repetition_penalty", words.REPETITION, words.REPETITION_HINT, 0, 10, open_below=True),
    Field("max_tokens", words.MAX_TOKENS, words.MAX_TOKENS_HINT, 1, 1_000_000, whole=True),
    Field("seed", words.SEED, words.SEED_HINT, 0, _SEED, whole=True),
)


class WrongSetting(ValueError):
    """One field at fault; the text is in the user's language."""


def parse(values: Mapping[str, Any], language: Language) -> Settings:
    """The panel's texts as settings. Raises WrongSetting."""
    found: dict[str, Any] = {field.name: _number(field, values.get(field.name), language) for field in FIELDS}
    return Settings(**found, json_schema=_schema(values.get("json_schema"), language))


def changed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Only what a user has filled in: what is kept for the next chat."""
    names = ("model", "system", "json_schema", *(field.name for field in FIELDS))
    return {name: values[name] for name in names if values.get(name) not in (None, "")}


def _number(field: Field, value: Any, language: Language) -> float | int | None:
    text = "" if value is None else str(value).strip().replace(",", ".")
    if not text:
        return None
    label = field.label.text(language)
    try:
        number: float = int(text) if field.whole else float(text)
    except ValueError:
        raise WrongSetting(words.NO_NUMBER.text(language, label=label, value=text)) from None
    below = number <= field.low if field.open_below else number < field.low
    if below or number > field.high or not math.isfinite(number):
        low = f"> {field.low:g}" if field.open_below else f"{field.low:g}"
        raise WrongSetting(words.OUT_OF_RANGE.text(language, label=label, low=low, high=f"{field.high:.16g}"))
    return number


def _schema(value: Any, language: Language) -> dict[str, Any] | None:
    text = "" if value is None else str(value).strip()
    if not text:
        return None
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise WrongSetting(words.NO_SCHEMA.text(language, reason=error)) from None
    if not isinstance(schema, dict):
        raise WrongSetting(words.NO_SCHEMA.text(language, reason=type(schema).__name__))
    return schema
