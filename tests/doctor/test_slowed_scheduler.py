"""A real server whose scheduler sleeps, as benchmarks/slowed_scheduler.py starts it: the host is what is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.builders import tiny_model_folder

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "slowed_scheduler.py"


def test_a_real_server_with_a_slow_scheduler_is_host_bound(tmp_path: Path) -> None:
    model = str(tiny_model_folder(tmp_path, max_position_embeddings=4096))
    command = [sys.executable, str(SCRIPT), "--model", model, "--slow-ms", "50", "--seconds", "1.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("scheduler slowed by 50 ms: host-bound, a step takes ")
    assert "it was never ahead" in done.stdout
