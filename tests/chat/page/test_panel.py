"""The settings panel's texts as settings."""

from __future__ import annotations

import pytest

from firsttoken.chat.page.panel import WrongSetting, changed, parse
from firsttoken.chat.settings import Settings


def test_empty_fields_leave_everything_to_the_server() -> None:
    assert parse({}, "en") == Settings()
    assert parse({"temperature": "", "seed": None, "json_schema": "  "}, "en") == Settings()


def test_numbers_are_read_as_people_write_them() -> None:
    assert parse({"temperature": " 0,7 ", "top_k": "20", "seed": "0"}, "en") == Settings(
        temperature=0.7, top_k=20, seed=0
    )


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("temperature", "hot", "Temperature: “hot” is not a number."),
        ("temperature", "3", "Temperature must be 0 to 2."),
        ("temperature", "nan", "Temperature must be 0 to 2."),
        ("top_p", "0", "Top-p must be > 0 to 1."),
        ("top_k", "1.5", "Top-k: “1.5” is not a number."),
        ("max_tokens", "0", "Longest answer must be 1 to 1000000."),
        ("json_schema", "[1]", "The JSON schema is not a JSON object: list."),
    ],
)
def test_a_wrong_value_is_said_with_its_field(field: str, text: str, sentence: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        parse({field: text}, "en")
    assert str(caught.value) == sentence


def test_only_what_was_filled_in_is_kept() -> None:
    assert changed({"model": "m", "system": "", "temperature": "0", "reset": False, "other": 1}) == {
        "model": "m",
        "temperature": "0",
    }
