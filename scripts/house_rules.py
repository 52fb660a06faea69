#!/usr/bin/env python3
"""Rules of this repository that no linter knows. Prints each breach with its place; exit code 1 if there is one."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CAP = 400  # lines a source file: one noun a file
CODE = {".py", ".c", ".h", ".cu", ".cpp"}
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
PATCHING = re.compile(r"\bmonkeypatch\.(setattr|setitem|delattr)\b|\bmock\.patch\b|\bimport patch\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(root|work|Users|home)/\w+")


def main() -> int:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    breaches = [breach for name in names if (ROOT / name).is_file() for breach in check_file(name)]
    print("\n".join(breaches))
    return 1 if breaches else 0


def check_file(name: str) -> Iterator[str]:
    path = ROOT / name
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    lines = text.splitlines()
    if path.suffix in CODE and len(lines) > CAP:
        yield f"{name}: {len(lines)} lines, {CAP} at most: split it by noun"
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield f"{name}:{number}: unfinished work belongs into an issue"
        if MACHINE_PATH.search(line):
            yield f"{name}:{number}: a path of one machine"
        if path.suffix == ".py" and PATCHING.search(line) and name != "scripts/house_rules.py":
            yield f"{name}:{number}: inject a fake through a constructor instead of patching"
    if name.startswith("tests/") and path.name.startswith("test_") and path.suffix == ".py":
        yield from check_tests(name, ast.parse(text))


def check_tests(name: str, tree: ast.Module) -> Iterator[str]:
    """A test's name is a sentence about behaviour, and a test can fail."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
            continue
        if node.name.count("_") < 3:
            yield f"{name}:{node.lineno}: {node.name} does not say what behaviour it shows"
        if not any(can_fail(inner) for inner in ast.walk(node)):
            yield f"{name}:{node.lineno}: {node.name} asserts nothing"


def can_fail(node: ast.AST) -> bool:
    """An assert, `pytest.raises`, or a call of something that checks or asserts by its name."""
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called in ("raises", "fail") or any(word in called for word in ("assert", "check", "expect", "match"))


if __name__ == "__main__":
    sys.exit(main())
