"""Shell text as commands: quotes, comments, continued lines, pipes, variables, redirections, here-documents."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_HISTORY = re.compile(r"^\s*(?:: \d+:\d+;|- cmd: |\d{1,6}\s+(?=[A-Za-z./_])|[$#>] (?=[A-Za-z./_]))")  # zsh, fish, bash
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_REDIRECTION = re.compile(r"(?:\d*|&)(?:>>|>\||<<<|<<-?|>|<)(?:&\d|&-)?")
_KEYWORDS = {"then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "time", "done", "fi", "esac", "("}
_SAFE = re.compile(r"[\w@%+=:,./~$*{}\[\]-]+")


@dataclass(slots=True)
class ShellCommand:
    """One simple command: its own settings, then its words. Values of variables that are known stand in the words."""

    words: list[str]
    variables: dict[str, str] = field(default_factory=dict)  # `A=1 command`
    exported: dict[str, str] = field(default_factory=dict)  # set on lines before
    line: int = 1
    text: str = ""  # as written, without the comment
    background: bool = False  # the next one starts while it runs


def commands(text: str) -> list[ShellCommand]:
    """Every simple command of a script, a history or a pasted line. What is no shell is left out, never an error."""
    known: dict[str, str] = {}
    found: list[ShellCommand] = []
    for line, segment, behind in _segments(_without_here_documents(text)):
        raw = _expand(segment, known)
        try:
            words = shlex.split(_without_redirections(raw))
        except ValueError:
            continue
        while words and words[0] in _KEYWORDS:
            words = words[1:]
        if words and words[0] in ("export", "set", "setx", "declare", "ENV") and len(words) > 1:
            if words[0] == "set" and words[1:2] == ["-x"] and len(words) == 4:
                words = ["export", f"{words[2]}={words[3]}"]  # fish
            assigned = dict(_settings(words[1:]))
            known |= assigned
            if words[0] != "set" and assigned:
                found.append(ShellCommand([], assigned, dict(known), line, segment.strip()))
                continue
        own = dict(_settings(words))
        words = words[len(own) :]
        if words:
            found.append(ShellCommand(words, own, dict(known), line, segment.strip(), behind))
        elif own:
            known |= own
            found.append(ShellCommand([], own, dict(known), line, segment.strip()))
    return found


def join(words: list[str]) -> str:
    """Words as a command line that a shell reads back; `$NAME` stays a variable."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    if _SAFE.fullmatch(word) and "{" not in word.replace("${", ""):
        return word
    if _VARIABLE.search(word) and not set('"`\\') & set(word):
        return f'"{word}"'
    return shlex.quote(word)


def _settings(words: list[str]) -> Iterator[tuple[str, str]]:
    """The leading `NAME=value` words."""
    for word in words:
        if not _ASSIGNMENT.match(word):
            return
        name, _, value = word.partition("=")
        yield name.rstrip("+"), value


def _expand(text: str, known: dict[str, str]) -> str:
    """Puts in the values of known variables outside single quotes; others stay as they are written."""
    parts = re.split(r"('[^']*')", text)

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name in known:
            return known[name]
        return match[3] if match[3] is not None else match[0]

    return "".join(part if part.startswith("'") else _VARIABLE.sub(value, part) for part in parts)


def _without_here_documents(text: str) -> str:
    """Their lines become empty, so that line numbers stay."""
    lines, end = [], None
    for line in text.splitlines():
        if end is None:
            mark = _HERE.search(line)
            lines.append(line)
            end = mark[2] if mark and "<<<" not in line else None
        else:
            lines.append("")
            end = None if line.strip() == end else end
    return "\n".join(lines)


def _segments(text: str) -> Iterator[tuple[int, str, bool]]:
    """The text between unquoted ends of commands, with its first line's number, and whether `&` ends it."""
    quote, depth, escaped = "", 0, False  # depth: of $( … )
    current: list[str] = []
    start, line = 1, 1
    text = "\n".join(_HISTORY.sub("", each, count=1) for each in text.split("\n"))
    position = 0
    while position < len(text):
        char = text[position]
        pair = text[position : position + 2]
        position += 1
        if escaped:
            escaped = False
            if char == "\n":
                current.append(" ")
            else:
                current.append("\\" + char)
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if char == quote else quote
            current += [] if depth else [char]
        elif char in "'\"`":
            quote = char
            current += [] if depth else [char]
        elif pair == "$(":
            depth += 1
            position += 1
            current.append("$_")  # what it gives is not known
        elif depth:
            depth += {"(": 1, ")": -1}.get(char, 0)
        elif char == "#" and (not current or current[-1].isspace()):
            position = (text.find("\n", position) + 1 or len(text) + 1) - 1
        elif char == "\n" or char == ";" or pair in ("&&", "||"):
            yield start, "".join(current), False
            current, start = [], line + (char == "\n")
            position += pair in ("&&", "||")
        elif char in "|&()" and not (char == "&" and (">" in "".join(current[-1:]) or pair == "&>")):
            yield start, "".join(current), char == "&"
            current, start = [], line
        else:
            current.append(char)
        if char == "\n":
            line += 1
            if not "".join(current).strip():
                start = line
    yield start, "".join(current), False


def _without_redirections(text: str) -> str:
    """Drops `> file` and its like outside quotes."""
    parts = re.split(r"('[^']*'|\"(?:\\.|[^\"])*\")", text)
    for number in range(0, len(parts), 2):
        parts[number] = re.sub(rf"(?:^|(?<=\s)){_REDIRECTION.pattern}(?:\s*[^\s<>]+)?", " ", parts[number])
        parts[number] = re.sub(r"\s\d*>&\d", " ", parts[number])
    return "".join(parts)
