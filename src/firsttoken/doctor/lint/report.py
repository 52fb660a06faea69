"""Findings for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from firsttoken.doctor.lint.finding import Finding, Level, worst
from firsttoken.doctor.lint.linter import Checked
from firsttoken.doctor.quantities import count

EXIT_CODES: dict[Level, int] = {"note": 0, "warn": 3, "error": 4}  # 1 and 2 are errors of the command, as in doctor
_WORDS: dict[Level, tuple[str, str]] = {
    "error": ("ERROR", "bold red"),
    "warn": ("warn", "yellow"),
    "note": ("note", "dim"),
}


def exit_code(found: Iterable[Checked]) -> int:
    """0 where nothing is worse than a note, 3 for what does nothing or harm, 4 for what fails."""
    return EXIT_CODES[worst([finding.level for checked in found for finding in checked.findings])]


def as_data(found: Sequence[Checked]) -> list[dict[str, Any]]:
    """Every command that lint knows, for JSON."""
    return [
        {
            "command": checked.text,
            "line": checked.line,
            "program": checked.program,
            "findings": [_finding(finding) for finding in checked.findings],
            "corrected": checked.corrected,
        }
        for checked in found
        if checked.program
    ]


def _finding(finding: Finding) -> dict[str, Any]:
    kept = ("rule", "level", "what", "why", "since", "source")
    return {key: value for key, value in asdict(finding).items() if key in kept}


def print_checked(console: Console, found: Sequence[Checked]) -> None:
    """Each command that something is to be said of, then how many there were."""
    for checked in found:
        if not checked.findings:
            continue
        where = f"line {checked.line}: " if checked.line else ""
        console.print(Text.assemble((where, "dim"), (_short(checked.text), "bold")), soft_wrap=True)
        for finding in checked.findings:
            word, style = _WORDS[finding.level]
            console.print(Text.assemble("  ", (f"{word:<6}", style), finding.what), soft_wrap=True)
            console.print(Text(f"         {finding.why}", style="dim"), soft_wrap=True)
            tail = " · ".join(part for part in (finding.since and f"since {finding.since}", finding.source) if part)
            console.print(Text(f"         {tail}  [{finding.rule}]", style="dim"), soft_wrap=True)
        if checked.corrected:
            console.print(Text.assemble(("  Right: ", "bold green"), checked.corrected), soft_wrap=True)
        elif checked.corrected == "":
            console.print(Text("  Right: leave it out.", style="bold green"), soft_wrap=True)
        console.print()
    console.print(summary(found))


def summary(found: Sequence[Checked]) -> Text:
    """What was checked and what was found, in one line."""
    known = [checked for checked in found if checked.program]
    if not known:
        return Text(
            "Nothing here that lint knows: it reads vLLM, SGLang, firsttoken, nvidia-smi, cpupower and their like."
        )
    levels = Counter(finding.level for checked in known for finding in checked.findings)
    parts = [count(levels["error"], "error"), count(levels["warn"], "warning"), count(levels["note"], "note")]
    return Text(f"{count(len(known), 'command')} checked: {', '.join(parts)}.")


def _short(text: str, most: int = 400) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
