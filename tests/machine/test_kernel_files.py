"""What a process is called: an interpreter's own name tells nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from firsttoken.machine.kernel_files import program_name


@pytest.mark.parametrize(
    ("comm", "words", "name"),
    [
        ("python3", ["/bin/python3", "-P", "-m", "firsttoken.engine", "{}"], "python3: firsttoken.engine"),
        ("python3.12", ["python3.12", "/opt/bin/firsttoken", "serve", "m"], "python3.12: firsttoken serve"),
        ("python3", ["python3", "-u", "train.py", "--epochs", "3"], "python3: train.py"),
        ("python3", ["python3", "-c", "import secret"], "python3"),
        ("python3", ["python3"], "python3"),
        ("VLLM::EngineCor", ["VLLM::EngineCore"], "VLLM::EngineCor"),
    ],
)
def test_a_program_has_a_name_that_tells_it_from_others(tmp_path: Path, comm: str, words: list[str], name: str) -> None:
    (tmp_path / "comm").write_text(f"{comm}\n")
    (tmp_path / "cmdline").write_text("\0".join(words) + "\0")
    assert program_name(tmp_path) == name


def test_a_process_that_cannot_be_seen_has_no_name(tmp_path: Path) -> None:
    assert program_name(tmp_path / "none") is None
