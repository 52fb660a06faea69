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
    names = [name for name in names if (ROOT / name).is_file()]
    tests = {
        name: ast.parse((ROOT / name).read_text())
        for name in names
        if name.startswith("tests/") and name.endswith(".py")
    }
    checkers = find_checkers(list(tests.values()))
    breaches = [breach for name in names for breach in check_file(name)]
    breaches += [breach for name, tree in tests.items() for breach in check_tests(name, tree, checkers)]
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


def check_tests(name: str, tree: ast.Module, checkers: set[str]) -> Iterator[str]:
    """A test's name is a sentence about behaviour, and a test can fail."""
    for node in functions(tree):
        if not node.name.startswith("test_"):
            continue
        if node.name.count("_") < 3:
            yield f"{name}:{node.lineno}: {node.name} does not say what behaviour it shows"
        if not can_fail(node, checkers):
            yield f"{name}:{node.lineno}: {node.name} asserts nothing"


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def can_fail(function: ast.AST, checkers: set[str]) -> bool:
    """Whether there is an assert in it, or a call of something that asserts."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in checkers or called.startswith("assert_"):
                return True
    return False


def find_checkers(trees: list[ast.Module]) -> set[str]:
    """Names of the tests' own helpers that assert, themselves or through each other."""
    checkers = {"raises", "fail", "check"}  # pytest's, and BlockPool.check
    while True:
        found = {f.name for tree in trees for f in functions(tree) if can_fail(f, checkers)} - checkers
        if not found:
            return checkers
        checkers |= found


if __name__ == "__main__":
    sys.exit(main())
