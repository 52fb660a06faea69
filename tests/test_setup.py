"""The set-up script's answers to what a fresh machine may lack, with fakes of the tools it asks on its PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


class FreshClone:
    """A folder with the set-up script in it and a PATH whose first part is ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clone"
        self.tools = folder / "tools"
        self.tools.mkdir()
        (self.folder / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "setup", self.folder / "scripts" / "setup")
        shutil.copy(ROOT / "pyproject.toml", self.folder)

    def tool(self, name: str, script: str) -> None:
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def python(self, script: str) -> None:
        for name in ("python3", "python3.11", "python3.12", "python3.13", "python"):
            self.tool(name, script)

    def demo(self, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.tools}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["sh", "scripts/setup", "demo"],
            cwd=self.folder,
            env=os.environ | {"PATH": path, "PYTHON": ""} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture
def clone(tmp_path: Path) -> FreshClone:
    return FreshClone(tmp_path)


def test_everything_that_make_and_ci_ask_of_it_is_known_to_it() -> None:
    asked = (ROOT / "Makefile").read_text() + (ROOT / ".ci" / "run").read_text()
    goals = set(re.findall(r"scripts/setup (\w+)", asked))
    known = set(re.findall(r"^    (\w+)\)$", (ROOT / "scripts" / "setup").read_text(), re.MULTILINE))
    assert goals >= {"demo", "test", "install"}
    assert goals <= known


def the_sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr."""
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


def test_an_old_python_is_named_with_the_versions_that_would_do(clone: FreshClone) -> None:
    clone.python('[ "$1" = -V ] && { echo Python 3.9.2; exit 0; }; exit 1')
    sentence = the_sentence(clone.demo())
    assert "needs Python 3.11, 3.12 or 3.13" in sentence
    assert "Python 3.9.2" in sentence


def test_a_python_that_was_named_and_is_not_there_is_told(clone: FreshClone) -> None:
    assert "here is no /nowhere/python;" in the_sentence(clone.demo(PYTHON="/nowhere/python"))


def test_a_python_that_was_named_and_is_too_old_is_told_with_its_version(clone: FreshClone) -> None:
    clone.tool("oldpython", '[ "$1" = -V ] && { echo Python 3.10.1; exit 0; }; exit 1')
    assert "here is Python 3.10.1;" in the_sentence(clone.demo(PYTHON="oldpython"))


def test_a_missing_venv_module_is_told_with_the_package_to_install(clone: FreshClone) -> None:
    clone.python(f'case "$*" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"')
    assert "python3-venv" in the_sentence(clone.demo())


def test_too_small_a_disk_is_told_in_numbers_before_anything_is_made(clone: FreshClone) -> None:
    clone.python(f'exec {sys.executable} "$@"')
    clone.tool("df", "echo header; echo /dev/disk 100 50 500000 5% /")
    assert "1 GiB of disk here and 0 GiB are free" in the_sentence(clone.demo())
    assert not (clone.folder / ".venv").exists()


def test_an_index_that_does_not_answer_is_told_and_the_environment_is_kept(clone: FreshClone) -> None:
    clone.python(f'exec {sys.executable} "$@"')
    offline = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
        "FIRSTTOKEN_TORCH_INDEX": "http://127.0.0.1:9/cpu",
    }
    first = clone.demo(**offline)
    assert first.returncode == 1
    assert "The package index does not answer" in first.stderr.splitlines()[-1]
    assert "[1/4] Environment: .venv is there." in clone.demo(**offline).stdout
