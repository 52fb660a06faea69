"""`firsttoken pull` as a user runs it, without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def pull(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "firsttoken", "pull", *args], capture_output=True, text=True, timeout=60
    )


def test_a_model_that_is_here_already_is_only_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    result = pull(str(tmp_path))
    assert (result.returncode, result.stdout) == (0, f"{tmp_path}\n")


def test_a_name_that_means_nothing_is_one_sentence(tmp_path: Path) -> None:
    result = pull("nonsense")
    assert result.returncode == 1
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


def test_an_unknown_hub_is_wrong_use_and_lists_the_hubs() -> None:
    result = pull("demo", "--hub", "elsewhere")
    assert result.returncode == 2
    assert "modelscope" in result.stderr
