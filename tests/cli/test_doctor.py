"""`firsttoken doctor` on this very machine, whatever it has; and its settings' commands, which change nothing here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

import firsttoken


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "firsttoken", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=100)


def test_the_machine_is_judged_and_the_exit_code_is_the_worst_verdict(tmp_path: Path) -> None:
    done = run("--no-load", "--json", "--models", str(tmp_path))
    found = json.loads(done.stdout)
    assert {"cores", "memory", "open files", "model disk"} <= {one["check"] for one in found["findings"]}
    assert done.returncode == {"ok": 0, "unread": 0, "warn": 3, "bad": 4}[found["verdict"]]
    assert found["readings"]["disk"]["folder"] == str(tmp_path)
    assert done.stderr == ""


def test_for_people_each_check_is_a_line_and_the_last_one_counts(tmp_path: Path) -> None:
    lines = run("--no-load", "--models", str(tmp_path)).stdout.splitlines()
    assert lines[0] == "Driver"
    assert re.fullmatch(r"\d+ bad, \d+ to look at, \d+ ok, \d+ not readable here", lines[-1])


def test_apply_shows_what_it_would_do_and_changes_nothing_in_a_dry_run(tmp_path: Path) -> None:
    done = run("apply", "--dry-run", "--journal", str(tmp_path / "tuning.json"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(("Nothing to change", "Would change"))
    assert list(tmp_path.iterdir()) == []


def test_restore_without_a_journal_has_nothing_to_do(tmp_path: Path) -> None:
    done = run("restore", "--journal", str(tmp_path / "tuning.json"))
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "Nothing to put back")


@pytest.mark.parametrize("words", [("--gpu", "99", "--persistence"), ("--governor", "turbo")])
def test_a_wish_that_cannot_be_is_one_sentence(words: tuple[str, ...]) -> None:
    done = run("apply", *words)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_an_option_of_the_checks_before_a_command_is_refused() -> None:
    done = run("--json", "restore")
    assert done.returncode == 2
    assert "--json belongs to the checks; write it after restore, if that has it." in done.stderr


def test_every_name_that_is_asked_of_nvml_is_in_its_package() -> None:
    source = Path(firsttoken.__file__).parent
    names = {
        name
        for file in source.rglob("*.py")
        for name in re.findall(r"\b(nvml(?:Device|System|Init|Shutdown)\w*|NVML_\w+)", file.read_text())
    }
    assert len(names) > 30
    assert {name for name in names if not hasattr(pynvml, name)} == set()
