"""A server's command line, taken apart as the server would: flags, values and what stands alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from firsttoken.doctor.lint.table import Flag, FlagTable

_NUMBER = re.compile(r"-\d+(\.\d+)?$")
_LEVEL = re.compile(r"-O(=?\d+|\.[\w.]+(=.*)?|=?[a-z]+)?$")


@dataclass(slots=True)
class Option:
    """One flag as it was given."""

    written: str  # without its value
    start: int  # its words in the command
    end: int
    values: tuple[str, ...] = ()
    flag: Flag | None = None  # None: no such flag
    off: bool = False  # `--no-x`
    attached: bool = False  # `--flag=value`

    @property
    def name(self) -> str:
        return self.flag.name if self.flag else self.written

    @property
    def value(self) -> str | None:
        return self.values[0] if self.values else None


@dataclass(slots=True)
class Launch:
    """The parts of one launch. Indices of words count from the command's first one."""

    table: FlagTable
    words: list[str]
    start: int  # where the flags begin
    options: list[Option] = field(default_factory=list)
    positional: list[tuple[int, str]] = field(default_factory=list)

    def given(self, name: str) -> Option | None:
        """The last one of that name, as the server takes it; a `--no-x` counts as given."""
        return next((option for option in reversed(self.options) if option.name == name), None)

    def all(self, name: str) -> Iterator[Option]:
        return (option for option in self.options if option.name == name)

    def text(self, name: str) -> str | None:
        """The flag's value; None where it is not given or its value is a variable."""
        option = self.given(name)
        value = option.value if option else None
        return None if value is None or "$" in value else value

    def on(self, name: str) -> bool:
        option = self.given(name)
        return option is not None and not option.off

    @property
    def model(self) -> str | None:
        """The model's name or path; None where it is a variable or is not given."""
        names = [self.text(name) for name in ("--model", "--model-path")]
        named = next((name for name in names if name), None)
        return named or next((word for _, word in self.positional if "$" not in word), None)


def take_apart(words: list[str], start: int, table: FlagTable) -> Launch:
    """Reads the words from `start` on. Nothing is judged here but what belongs to what."""
    launch = Launch(table, words, start)
    position = start
    while position < len(words):
        word = words[position]
        if word == "--":  # what follows are words, whatever they begin with
            launch.positional += list(enumerate(words[position + 1 :], position + 1))
            break
        if table.program == "vLLM" and _LEVEL.match(word):
            after = position + 1
            taken = word == "-O" and after < len(words) and not words[after].startswith("-")
            position = after + taken
        elif word.startswith("-") and len(word) > 1 and not _NUMBER.match(word):
            option = _option(launch, position)
            launch.options.append(option)
            position = option.end
        else:
            launch.positional.append((position, word))
            position += 1
    return launch


def _option(launch: Launch, position: int) -> Option:
    words, table = launch.words, launch.table
    written, equals, value = words[position].partition("=")
    flag, off = table.find(written)
    if flag is None:
        near = table.abbreviated(written)
        flag = near[0] if len(near) == 1 else None
    option = Option(written, position, position + 1, flag=flag, off=off, attached=bool(equals))
    if equals:
        option.values = (value,)
        return option
    kind = flag.kind if flag else "unknown"
    if "." in written and table.dotted and kind == "json":
        kind = "str"
    if kind in ("switch", "on-off"):
        follows = words[position + 1] if position + 1 < len(words) else ""
        if follows.lower() in ("true", "false"):  # a common mistake; judged by the checks
            option.values, option.end = (follows,), position + 2
        return option
    most = len(words) if kind == "list" else 1
    end = position + 1
    while end < len(words) and end - position <= most and _is_value(words[end]):
        end += 1
    option.values, option.end = tuple(words[position + 1 : end]), end
    return option


def _is_value(word: str) -> bool:
    """A quoted word is one too, as in `--flags "--max-model-len 8192"`: no flag's name has a space."""
    quoted = len(word.partition("=")[0].split()) > 1
    return not word.startswith("-") or word == "-" or quoted or _NUMBER.match(word) is not None
