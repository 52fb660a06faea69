"""The data: each row has a source and examples, which it names; its correction cures it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from firsttoken.cli.lint import own_table
from firsttoken.doctor.lint.finding import Finding
from firsttoken.doctor.lint.flag_checks import known_names
from firsttoken.doctor.lint.linter import Checked, Linter
from firsttoken.doctor.lint.python_checks import check_python, python_rules
from firsttoken.doctor.lint.rules import Rule, load_rules
from firsttoken.doctor.lint.table import load_table

LINTER = Linter(firsttoken=own_table)
ROOT = files("firsttoken.doctor.lint")


def rules_of(found: list[Checked]) -> set[str]:
    return {finding.rule for checked in found for finding in checked.findings}


def wrong(found: list[Checked]) -> list[Finding]:
    return [finding for checked in found for finding in checked.findings if finding.level != "note"]


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.id)
def test_a_rule_names_its_bad_commands_and_no_good_one(rule: Rule) -> None:
    assert rule.bad
    for command in rule.bad:
        assert rule.id in rules_of(LINTER.check_text(command))
    for command in rule.good:
        assert rule.id not in rules_of(LINTER.check_text(command))


@pytest.mark.parametrize("rule", [rule for rule in load_rules() if rule.level != "note"], ids=lambda rule: rule.id)
def test_what_a_rule_says_more_than_a_note_of_can_be_corrected(rule: Rule) -> None:
    for command in rule.bad:
        for checked in LINTER.check_text(command):
            if rule.id in rules_of([checked]):
                assert checked.corrected is not None
                assert wrong(LINTER.check_text(checked.corrected)) == []


@pytest.mark.parametrize("rule", python_rules(), ids=lambda rule: rule["id"])
def test_a_rule_for_python_names_its_bad_snippets_and_no_good_one(rule: dict[str, Any]) -> None:
    assert rule["bad"]
    for snippet in rule["bad"]:
        found = check_python(LINTER, snippet)
        assert rule["id"] in rules_of(found)
        for checked in found:
            if checked.corrected is not None:
                assert wrong(check_python(LINTER, snippet.replace(checked.text, checked.corrected))) == []
    for snippet in rule.get("good", ()):
        assert rule["id"] not in rules_of(check_python(LINTER, snippet))


def names() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for program, rows in known_names().items():
        for flag, row in rows.items():
            yield program, flag, dict(row)


@pytest.mark.parametrize(
    ("program", "flag", "row"), list(names()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_name_that_is_no_flag_is_told_with_what_takes_its_place(program: str, flag: str, row: dict[str, Any]) -> None:
    start = {"vllm": "vllm serve", "sglang": "sglang serve --model-path m/m", "firsttoken": "firsttoken serve"}[program]
    model = "" if row.get("model") or program == "sglang" else " m/m"
    value = f" '{row['value']}'" if "value" in row else ""
    command = f"{start}{model} {flag}{value}"
    linter = Linter(firsttoken=own_table, versions={program: row["version"]} if "version" in row else {})
    (checked,) = linter.check_text(command)
    assert {"flag-unknown", "flag-removed"} & rules_of([checked])
    assert row["why"] in [finding.why for finding in checked.findings]
    assert checked.corrected is not None
    assert wrong(linter.check_text(checked.corrected)) == []


def test_every_rule_has_a_name_of_its_own_and_a_source_that_is_there() -> None:
    rows = [(rule.id, rule.source) for rule in load_rules()]
    rows += [(rule["id"], rule["source"]) for rule in python_rules()]
    rows += [(f"{program} {flag}", row["source"]) for program, flag, row in names()]
    assert len({name for name, _ in rows}) == len(rows)
    for _, source in rows:
        page = source.split("#")[0]
        assert re.match(r"https://\w", source) or (ROOT / "../../../.." / page).is_file()


@pytest.mark.parametrize("tool", ["vllm", "sglang"])
def test_a_table_of_flags_is_whole(tool: str) -> None:
    raw = tomllib.loads((ROOT / "tables" / f"{tool}.toml").read_text(encoding="utf-8"))
    table = load_table(tool)
    assert len(raw["flags"]) > 300
    for name, row in raw["flags"].items():
        assert name.startswith("--")
        assert row["since"] in raw["versions"]
        assert row.get("gone", raw["versions"][-1]) in raw["versions"]
        flag, off = table.find(name)
        assert flag is not None
        if off:  # a name that is gone may be what turns another off
            assert "gone" in row
        else:
            assert {name, *row.get("also", ())} & {flag.name, *flag.also}
