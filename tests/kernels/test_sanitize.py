"""The kernels' tests under a sanitizer: which are run how, and what is said of them; the sanitizer is a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kernels.sanitize import GRAPHS, kernel_names, shares

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = """#!{python}
import os, sys
words = sys.argv[1:]
program = words.index(sys.executable) if sys.executable in words else words.index({python!r})
assert words[:2] == ["--tool", "racecheck"]
watched = [word for word in words[:program] if word.startswith("kns=")]
print("watched", len(watched), "caching", "PYTORCH_NO_CUDA_MEMORY_CACHING" not in os.environ)
code = os.spawnv(os.P_WAIT, words[program], words[program:])
print("========= RACECHECK SUMMARY: {hazards} hazards displayed")
sys.exit(code or {hazards})
"""


def test_tests_that_capture_graphs_have_processes_of_their_own() -> None:
    tests = [f"a.py::test_{i}" for i in range(9)] + [f"{GRAPHS}::test_{i}" for i in range(3)]
    split = shares(tests, 8)
    assert len(split) == 8
    assert sorted(test for share in split for test in share) == sorted(tests)
    assert all(len({GRAPHS in test for test in share}) == 1 for share in split)
    assert sum(GRAPHS in share[0] for share in split) == 2
    assert len(shares(tests[:9], 4)) == len(shares(tests, 4)) == 4
    assert len(shares(tests, 1)) == 2, "they cannot share one"


def test_every_kernel_of_the_package_is_watched() -> None:
    assert {"matvec_kernel", "quant_pairs_kernel", "row_attention_kernel"} <= kernel_names()
    assert "run_kernel" not in kernel_names(), "which launches them"


@pytest.mark.parametrize("hazards", [0, 1])
def test_what_the_sanitizer_finds_fails_the_run(hazards: int, tmp_path: Path) -> None:
    stand_in = tmp_path / "bin" / "compute-sanitizer"
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN.format(python=sys.executable, hazards=hazards))
    stand_in.chmod(0o755)
    command = [sys.executable, "-m", "tests.kernels.sanitize", "--tool", "racecheck", "--processes", "1"]
    command += ["-k", "greedy_takes", "--out", str(tmp_path / "out")]
    environ = os.environ | {"PATH": f"{stand_in.parent}:{os.environ['PATH']}", "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == hazards, done.stdout + done.stderr
    assert f"racecheck-0.log: 1 tests, exit {hazards}; 1 passed" in done.stdout
    assert f"RACECHECK SUMMARY: {hazards} hazards" in done.stdout
    log = (tmp_path / "out" / "racecheck-0.log").read_text()
    assert f"watched {len(kernel_names())} caching False" in log
