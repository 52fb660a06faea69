"""What lint says of a command, and how the command would be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Level = Literal["note", "warn", "error"]
LEVELS: tuple[Level, ...] = ("note", "warn", "error")  # nothing to change; works, but does nothing or harm; fails


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces the words `start` to `end` (exclusive) of a command. Indices count the command's own words."""

    start: int
    end: int
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, with the reason and where the reason is written down."""

    rule: str  # the rule's name, stable for scripts
    level: Level
    what: str  # one sentence about this command
    why: str  # one or two sentences about the matter
    since: str = ""  # "vLLM 0.11.0": from where on it is so
    source: str = ""  # a URL, or a page of docs/
    line: int = 0  # in the file, from 1; 0 where there is none
    edits: tuple[Edit, ...] = ()  # what the corrected command changes
    variables: tuple[str, ...] = ()  # environment settings that it leaves out
    outer: tuple[str, ...] = ()  # flags that the container is to get before its image
    replacement: str | None = None  # instead of edits: the whole corrected command; "" leaves it out
    whole: bool = True  # whether the correction cures it: one without a correction says False


def worst(levels: Sequence[Level]) -> Level:
    """The worst of them; a note where there are none."""
    return max(levels, key=LEVELS.index, default="note")


def apply(words: Sequence[str], edits: Sequence[Edit]) -> list[str]:
    """The words after all edits; of edits that overlap the first one given wins."""
    chosen: list[Edit] = []
    for edit in edits:
        if all(edit.end <= other.start or other.end <= edit.start for other in chosen if edit != other):
            chosen += [] if edit in chosen else [edit]
    result = list(words)
    for edit in sorted(chosen, key=lambda edit: (edit.start, edit.end), reverse=True):
        result[edit.start : edit.end] = edit.words
    return result
