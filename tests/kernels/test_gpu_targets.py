"""The GPU kernels compile for every supported architecture and fit its shared memory. No card is needed for that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

REPOSITORY = Path(__file__).resolve().parents[2]
# Compute capability to the shared memory a block may use, in KiB (CUDA C++ Programming Guide, technical specifications)
LIMITS = {80: 163, 86: 99, 89: 99, 90: 227}


@pytest.mark.parametrize("capability", LIMITS)
def test_kernels_compile_and_fit_the_shared_memory_of(capability: int, tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compile_targets", str(capability), str(LIMITS[capability])],
        cwd=REPOSITORY,
        env=environ | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    used = {tuple(line.split()[:2]): int(line.split()[2]) for line in result.stdout.splitlines()}
    assert {name for name, _ in used} >= {"matvec", "dot", "row_attention", "chunk_attention", "rope_cache", "prepare"}
    assert {name for name, _ in used} >= {"quant_matvec", "quant_fixed", "quant_dot", "widen"}
    assert capability < 89 or {name for name, _ in used} >= {"quant_pairs", "pair_rows", "fp8_rows"}
    too_much = {name: size for name, size in used.items() if size > LIMITS[capability] * 1024}
    assert not too_much
