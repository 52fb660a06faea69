"""Findings on a terminal: one line a check, and below what is not well why it matters and what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from firsttoken.doctor.finding import Finding, Verdict, worst
from firsttoken.doctor.readings import Readings

WORDS: dict[Verdict, str] = {"ok": "ok", "warn": "warn", "bad": "BAD", "unread": "–"}
_MARK, _GAP = 6, 2  # columns of the verdict, and between columns
_STYLES: dict[Verdict, str] = {"ok": "green", "warn": "yellow", "bad": "bold red", "unread": "dim"}


def print_findings(console: Console, findings: Sequence[Finding], *, explain: bool = False) -> None:
    """Findings under their areas, in the given order; `explain` says of the good ones too why they matter."""
    width = max((len(one.check) for one in findings), default=0)
    room = max(console.width - _MARK - width - 2 * _GAP, 20)
    for area, group in groupby(findings, key=lambda one: one.area):
        console.print(Text(area[:1].upper() + area[1:], style="bold"))
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, _GAP, 0, 0))
        table.add_column(width=_MARK)
        table.add_column(width=width)
        table.add_column(overflow="fold")
        for one in group:
            table.add_row(Text(f"  {WORDS[one.verdict]}", _STYLES[one.verdict]), one.check, _words(one, explain, room))
        console.print(table)
        console.print()
    console.print(summary(findings))


def as_document(findings: Sequence[Finding], readings: Readings) -> str:
    """Findings and the readings that they rest on, as JSON; `readings` can be decoded into `Readings` again."""
    document = {"verdict": worst(findings), "findings": findings, "readings": readings}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def summary(findings: Sequence[Finding]) -> Text:
    """How many of each verdict, in one line."""
    count = Counter(one.verdict for one in findings)
    parts = [
        (f"{count['bad']} bad", _STYLES["bad"] if count["bad"] else ""),
        (f"{count['warn']} to look at", _STYLES["warn"] if count["warn"] else ""),
        (f"{count['ok']} ok", _STYLES["ok"] if count["ok"] else ""),
        (f"{count['unread']} not readable here", "dim"),
    ]
    line = Text()
    for text, style in parts:
        line.append(", " if line else "").append(text, style=style)
    return line


def _words(one: Finding, explain: bool, room: int) -> Text:
    text = Text(fill(one.reading, room), style="dim" if one.verdict == "unread" else "")
    if one.verdict in ("warn", "bad") or explain:
        text.append(f"\n{fill(one.why, room)}", style="dim")
    if one.fix:
        text.append("\nFix: ", style="bold").append(fill(f"Fix: {one.fix}", room).removeprefix("Fix: "))
    return text


def fill(text: str, width: int) -> str:
    """Lines of at most `width`; a command in backticks stays whole where it fits, so that it can be copied."""
    lines: list[str] = []
    for word in re.findall(r"\S*`[^`]*`\S*|\S+", text):
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)
