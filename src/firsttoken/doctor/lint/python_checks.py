"""Python snippets: calls of transformers, openai and vLLM by their syntax trees. Nothing of them is run."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from firsttoken.doctor.lint.finding import Finding
from firsttoken.doctor.lint.linter import Checked, Linter
from firsttoken.doctor.lint.shell import ShellCommand
from firsttoken.errors import ConfigError

_ENGINES = {"LLM": "vllm", "EngineArgs": "vllm", "AsyncEngineArgs": "vllm", "Engine": "sglang"}
Change = tuple[int, int, str]  # of the text: from, to, what stands there then


@cache
def python_rules() -> tuple[Mapping[str, Any], ...]:
    text = (files(__package__) / "rules" / "python.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["rule"])


def check_python(linter: Linter, text: str) -> list[Checked]:
    """The calls that something is to be said of. Raises ConfigError where it is no Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(f"This is no Python that can be read: {error.msg} in line {error.lineno}.") from None
    found = []
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func)
            if name.split(".")[-1] in _ENGINES and re.search(r"\b(vllm|sglang)\b", text):
                found.append(_engine(linter, call, _ENGINES[name.split(".")[-1]], text))
            elif (checked := _call(call, name, text)) is not None:
                found.append(checked)
    return sorted(found, key=lambda checked: checked.line)


def _call(call: ast.Call, name: str, text: str) -> Checked | None:
    """One call and what the rules say of it; None where they say nothing."""
    written = ast.get_source_segment(text, call) or ast.unparse(call)
    findings: list[Finding] = []
    changes: list[Change] = []
    for rule in python_rules():
        for keyword in _matches(rule, call, name, text):
            value = ast.unparse(keyword.value) if keyword else ""
            words = {"call": name, "keyword": keyword.arg if keyword else "", "value": value}
            findings.append(
                Finding(
                    rule=rule["id"],
                    level=rule["level"],
                    what=rule["what"].format(**words),
                    why=rule["why"].format(**words),
                    since=rule.get("since", ""),
                    source=rule["source"],
                    line=call.lineno,
                    whole="fix" in rule or rule["level"] == "note",
                )
            )
            changes += _changes(rule.get("fix") or {}, call, keyword, text, words)
    if not findings:
        return None
    checked = Checked(written, call.lineno, "python", findings)
    wrong = [finding for finding in findings if finding.level != "note"]
    if wrong and all(finding.whole for finding in wrong):
        start, end = _place(call, text)
        checked.corrected = _applied(text, changes, start, end)
    return checked


def _matches(rule: Mapping[str, Any], call: ast.Call, name: str, text: str) -> Iterator[ast.keyword | None]:
    """The keywords that the rule speaks of, or None once where it speaks of the call."""
    if not re.search(rule["call"], name):
        return
    if ("raw" in rule and not re.search(rule["raw"], text)) or ("not_raw" in rule and re.search(rule["not_raw"], text)):
        return
    if "argument" in rule and not any(re.search(rule["argument"], ast.unparse(each)) for each in call.args):
        return
    if "with_false" in rule and not any(
        each.arg == rule["with_false"] and ast.unparse(each.value) == "False" for each in call.keywords
    ):
        return
    if "keyword" not in rule:
        yield None
        return
    names = [rule["keyword"]] if isinstance(rule["keyword"], str) else rule["keyword"]
    for keyword in call.keywords:
        value = ast.unparse(keyword.value)
        fits = value in rule["is"] if "is" in rule else re.search(rule.get("is_like", ""), value)
        if keyword.arg in names and fits:
            yield keyword


def _changes(
    fix: Mapping[str, Any], call: ast.Call, keyword: ast.keyword | None, text: str, words: Mapping[str, Any]
) -> Iterator[Change]:
    if "call" in fix:
        start, end = _place(call.func, text)
        yield end - len(ast.unparse(call.func).split(".")[-1]), end, fix["call"]
        if call.args and "argument" in fix:
            yield *_place(call.args[0], text), fix["argument"]
    if keyword is None:
        return
    start, end = _place(keyword, text)
    value_start, value_end = _place(keyword.value, text)
    if fix.get("drop"):
        after = re.match(r"\s*,\s*", text[end:])
        before = re.search(r",\s*$", text[:start])
        yield (start, end + len(after[0]), "") if after else (start - len(before[0]) if before else start, end, "")
    elif "to" in fix or "value" in fix:
        value = fix["value"].format(**words) if "value" in fix else text[value_start:value_end]
        yield start, end, f"{fix.get('to', keyword.arg)}={value}"
    elif "sub" in fix:
        yield value_start, value_end, re.sub(fix["sub"][0], fix["sub"][1], text[value_start:value_end])


def _place(node: ast.AST, text: str) -> tuple[int, int]:
    """The characters of a node in the text."""
    lines = text.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:  # columns count bytes
        return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

    ends: Any = node
    return offset(ends.lineno, ends.col_offset), offset(ends.end_lineno, ends.end_col_offset)


def _applied(text: str, changes: list[Change], start: int, end: int) -> str:
    for first, last, new in sorted(changes, reverse=True):
        text = text[:first] + new + text[last:]
        end += len(new) - (last - first)
    return text[start:end]


def _engine(linter: Linter, call: ast.Call, program: str, text: str) -> Checked:
    """vLLM's and SGLang's classes take a server's flags as arguments: checked as such."""
    words = ["vllm", "serve"] if program == "vllm" else ["sglang", "serve"]
    model = next((each.value for each in call.keywords if each.arg in ("model", "model_path")), None)
    model = model or (call.args[0] if call.args else None)
    named = isinstance(model, ast.Constant)
    words += [str(model.value) if isinstance(model, ast.Constant) else "$MODEL"]
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in ("model", "model_path"):
            continue
        words += _as_flag(keyword.arg, keyword.value)
    checked = linter.check(ShellCommand(words, {}, {}, call.lineno, ""))[0]
    checked.text = ast.get_source_segment(text, call) or ast.unparse(call)
    checked.program = "python"
    checked.port = None
    kept = [finding for finding in checked.findings if finding.rule not in ("sglang-old-module", "model-flag-of-serve")]
    checked.findings = kept if named else [finding for finding in kept if finding.rule != "no-model"]
    if checked.corrected:
        checked.corrected += "   # the same as a command"
    return checked


def _as_flag(name: str, value: ast.expr) -> list[str]:
    flag = "--" + name.replace("_", "-")
    try:
        constant = ast.literal_eval(value)
    except ValueError:
        return [flag, "$VALUE"]
    if isinstance(constant, bool):
        return [flag] if constant else ["--no-" + flag[2:]]
    if constant is None:
        return []
    if isinstance(constant, dict):
        return [flag, json.dumps(constant)]
    return [flag, *map(str, constant)] if isinstance(constant, list | tuple) else [flag, str(constant)]
