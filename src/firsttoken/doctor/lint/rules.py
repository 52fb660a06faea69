"""Rules that are data: `rules/*.toml` says when each holds, what it says, where that is written, and what is right.

A rule's `when` holds if all of its keys do. For a server's flags: `flag` (any of these is given), `off` (turned off),
`is`, `is_not`, `above`, `below`, `matches`, `lacks` (its value), `with` and `without` (other flags), `from_version`.
For all: `model` and `not_model` (an expression in the model's name), `variable` (one of these is set; the keys on
values then speak of it), `words` and `without_words` (an expression in the command), `raw` (in the line as it was
written, with redirections), `container`. What is right (`fix`): `drop` the flag, `value` in place of its own, `words`
in place of flag and value, `replace` expressions in the command, `unset` the variable, or `leave_out` the whole.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from firsttoken.doctor.lint.case import Case
from firsttoken.doctor.lint.finding import Edit, Finding, Level
from firsttoken.doctor.lint.launch import Launch, Option
from firsttoken.doctor.lint.table import number

_FILES = ("vllm", "sglang", "servers", "models", "environment", "gpu", "host", "clients")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of the data. `bad` are commands that it must speak of, `good` some that it must not."""

    id: str
    program: tuple[str, ...]
    level: Level
    when: Mapping[str, Any]
    what: str
    why: str
    source: str
    bad: tuple[str, ...]
    since: str = ""
    good: tuple[str, ...] = ()
    fix: Mapping[str, Any] | None = None


@cache
def load_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the files."""
    rules = []
    for name in _FILES:
        raw = tomllib.loads((files(__package__) / "rules" / f"{name}.toml").read_text(encoding="utf-8"))
        for row in raw["rule"]:
            programs = row.pop("program", "any")
            row |= {key: tuple(row[key]) for key in ("bad", "good") if key in row}
            rules.append(Rule(program=(programs,) if isinstance(programs, str) else tuple(programs), **row))
    return tuple(rules)


def findings(case: Case) -> Iterator[Finding]:
    """What the rules say of a command."""
    for rule in load_rules():
        if "any" in rule.program or case.program in rule.program:
            yield from _judge(rule, case)


def _judge(rule: Rule, case: Case) -> Iterator[Finding]:
    when = rule.when
    if not _surroundings(when, case):
        return
    if "variable" in when:
        for name in _listed(when["variable"]):
            if name in case.variables and _value_fits(when, case.variables[name]):
                yield _finding(rule, case, name, case.variables[name], None)
    elif "flag" in when:
        assert case.launch is not None
        for option in _options(when, case.launch):
            yield _finding(rule, case, option.written, " ".join(option.values), option)
            return
    else:
        yield _finding(rule, case, "", "", None)


def _surroundings(when: Mapping[str, Any], case: Case) -> bool:
    launch = case.launch
    if launch is None and ({"flag", "with", "without"} & set(when)):
        return False
    if launch is not None:
        if not all(launch.on(name) for name in _listed(when.get("with"))):
            return False
        if any(launch.given(name) is not None for name in _listed(when.get("without"))):
            return False
        version = number(launch.table.version)
        if "from_version" in when and version < number(when["from_version"]):
            return False
    if "model" in when and not (case.model and re.search(when["model"], case.model)):
        return False
    if "not_model" in when and not (case.model and not re.search(when["not_model"], case.model)):
        return False
    if "container" in when and bool(case.container) != when["container"]:
        return False
    if "words" in when and not re.search(when["words"], case.text):
        return False
    if "without_words" in when and re.search(when["without_words"], case.text):
        return False
    return "raw" not in when or re.search(when["raw"], case.raw) is not None


def _options(when: Mapping[str, Any], launch: Launch) -> Iterator[Option]:
    names = _listed(when["flag"])
    for option in launch.options:
        if option.name in names and option.off == when.get("off", False) and _value_fits(when, option.value):
            yield option


def _value_fits(when: Mapping[str, Any], value: str | None) -> bool:
    asked = {"is", "is_not", "above", "below", "matches", "lacks"} & set(when)
    if not asked:
        return True
    if value is None or "$" in value:
        return False  # a variable's value is not known
    if "is" in when and value not in when["is"]:
        return False
    if "is_not" in when and value in when["is_not"]:
        return False
    if "matches" in when and not re.search(when["matches"], value):
        return False
    if "lacks" in when and re.search(when["lacks"], value):
        return False
    if "above" in when or "below" in when:
        size = quantity(value)
        return size is not None and size > when.get("above", -1e30) and size < when.get("below", 1e30)
    return True


def quantity(value: str) -> float | None:
    """`32768`, `32K`, `0.9` as a number; None where it is none."""
    match = re.fullmatch(r"(-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?)([kKmMgG]?)", value.strip())
    if match is None:
        return None
    return float(match[1]) * {"": 1, "k": 1e3, "K": 1024, "m": 1e6, "M": 1024**2, "g": 1e9, "G": 1024**3}[match[2]]


def _listed(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _finding(rule: Rule, case: Case, flag: str, value: str, option: Option | None) -> Finding:
    fields = {"flag": flag, "value": value, "model": case.model or "", "program": case.words[0] if case.words else ""}
    edits: tuple[Edit, ...] = ()
    variables: tuple[str, ...] = ()
    replacement = None
    fix = rule.fix or {}
    start, end = (option.start, option.end) if option else (len(case.words), len(case.words))
    if fix.get("drop"):
        edits = (Edit(start, end),)
    elif "value" in fix:
        edits = (Edit(start, end, (flag, fix["value"])),)
    elif "words" in fix:  # instead of the flag, or at the end
        edits = (Edit(start, end, tuple(word.format(**fields) for word in fix["words"])),)
    elif "replace" in fix:
        pairs = fix["replace"] if isinstance(fix["replace"][0], list) else [fix["replace"]]
        replacement = case.text
        for pattern, by in pairs:
            replacement = re.sub(pattern, by, replacement)
    elif fix.get("leave_out"):
        replacement = ""
    elif fix.get("unset"):
        variables = (flag,)
    return Finding(
        rule=rule.id,
        level=rule.level,
        what=rule.what.format(**fields),
        why=rule.why,
        since=rule.since,
        source=rule.source,
        line=case.line,
        edits=edits,
        variables=variables,
        replacement=replacement,
        whole=bool(fix),
    )
