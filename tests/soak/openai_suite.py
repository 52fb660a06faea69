"""openai-python's own tests against a server: fetched from the package index in the version installed, never kept here.

Their tests were made for a mock that accepts whatever the API's document allows, so some send what this server must
refuse. Those are listed with the status they must get; all others must pass.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

FILES = ("chat/test_completions.py", "test_completions.py", "test_models.py", "test_responses.py")
_NOT_STORED = "nothing is stored, so there is nothing to get, list, change, cancel or delete"
_FORMS = ("method", "raw_response", "streaming_response")

# What a test's name begins with, in a file -> (statuses, why)
REFUSED: dict[tuple[str, str], tuple[frozenset[int], str]] = {
    ("chat/test_completions.py", "test_method_create_with_all_params"): (
        frozenset({400}),
        "it sends `store: true`, audio, a logit_bias of 'foo' and max_tokens 0",
    ),
    ("test_completions.py", "test_method_create_with_all_params"): (
        frozenset({400}),
        "it sends `best_of: 0`, a logit_bias of 'foo' and a suffix",
    ),
    **{
        (file, f"test_{form}_{method}"): (frozenset({404, 405}), _NOT_STORED)
        for form in _FORMS
        for file, methods in (
            ("chat/test_completions.py", ("retrieve", "update", "list", "delete")),
            ("test_responses.py", ("retrieve", "delete", "cancel", "compact")),
        )
        for method in methods
    },
    **{("test_models.py", f"test_{form}_delete"): (frozenset({405}), "a model cannot be deleted") for form in _FORMS},
    **{
        ("test_responses.py", f"test_{form}_create"): (
            frozenset({400}),
            "it sends no input, or a stored conversation and `background: true` (see tests/api/test_openai_calls.py)",
        )
        for form in _FORMS
    },
}
_STATUS = re.compile(r"Error code: (\d{3})")


class SuiteUnavailable(Exception):
    """The package index gave no sources."""


@dataclass
class Outcome:
    passed: int = 0
    refused: dict[str, int] = field(default_factory=dict)  # why -> how many
    skipped: int = 0
    wrong: list[str] = field(default_factory=list)


def fetch(folder: Path) -> Path:
    """Their source tree of the installed version; asks the index only where it is not there yet.

    Raises SuiteUnavailable.
    """
    name = f"openai-{version('openai')}"
    tree = folder / name
    if not tree.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "2"]
        wanted = [
            "--no-binary",
            ":all:",
            "--no-deps",
            "--no-build-isolation",
            "--dest",
            str(folder),
            name.replace("-", "=="),
        ]
        done = subprocess.run([*pip, *wanted], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise SuiteUnavailable(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip failed")
        with tarfile.open(folder / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return tree


def models(tree: Path, files: Iterable[str] = FILES) -> list[str]:
    """The names of models that their tests ask for, which the server must go by."""
    texts = [(tree / "tests/api_resources" / file).read_text() for file in files]
    return sorted({name for text in texts for name in re.findall(r'model="([^"]+)"', text)} | {"model"})


def run(tree: Path, url: str, files: Iterable[str] = FILES, only: str = "") -> Outcome:
    """Their tests in a process of their own, with nothing of ours in it; `only` those whose names contain it."""
    report = tree / "report.xml"
    report.unlink(missing_ok=True)
    paths = [f"tests/api_resources/{file}" for file in files]
    options = ["-o", "addopts=", "-q", "--tb=line", "--show-capture=no", f"--junit-xml={report}", "-k", only]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "OPENAI_"))}
    environment["TEST_API_BASE_URL"] = f"{url}/v1"
    command = [sys.executable, "-P", "-m", "pytest", "-p", "no:schemathesis", *options, *paths]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=600)
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    outcome = Outcome()
    for case in ElementTree.parse(report).iter("testcase"):
        _judge(case, outcome)
    return outcome


def _judge(case: ElementTree.Element, outcome: Outcome) -> None:
    path, _, _ = case.attrib["classname"].rpartition(".")
    file = path.removeprefix("tests.api_resources.").replace(".", "/") + ".py"
    name = case.attrib["name"]
    if case.find("skipped") is not None:
        outcome.skipped += 1
        return
    problem = case.find("failure")
    problem = case.find("error") if problem is None else problem
    expected = next((known for (at, start), known in REFUSED.items() if at == file and name.startswith(start)), None)
    if problem is None:
        if expected is None:
            outcome.passed += 1
        else:
            outcome.wrong.append(f"{file} {name} passed, though {expected[1]}")
        return
    said = f"{problem.get('message', '')} {problem.text or ''}"
    if "aiohttp" in name and "aiohttp" in said and "Error code" not in said:
        outcome.skipped += 1  # the extra `openai[aiohttp]` is not installed
        return
    status = _STATUS.search(said)
    if expected is not None and status is not None and int(status[1]) in expected[0]:
        outcome.refused[expected[1]] = outcome.refused.get(expected[1], 0) + 1
    else:
        outcome.wrong.append(f"{file} {name}: {said.strip()[:300]}")
