"""English or Chinese: which one a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Language = Literal["en", "zh"]


@dataclass(frozen=True, slots=True)
class Words:
    """A sentence in both languages, with the same {names} to fill in."""

    en: str
    zh: str

    def text(self, language: Language, /, **values: object) -> str:
        return (self.zh if language == "zh" else self.en).format(**values)


def language_of(tag: str) -> Language:
    """Of a locale or language tag, such as `zh_CN.UTF-8`, or of a browser's list, such as `zh-CN,zh;q=0.9,en;q=0.8`."""
    return "zh" if tag.strip().lower().startswith("zh") else "en"


def language_of_environment(environment: Mapping[str, str]) -> Language:
    """The first of LC_ALL, LC_MESSAGES and LANG that is set decides, as for other programs."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := environment.get(name):
            return language_of(value)
    return "en"
