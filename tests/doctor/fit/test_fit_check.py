"""What `fit` says beside a real server, as benchmarks/fit_check.py does it on a GPU; here a tiny model on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import tiny_model_folder

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "fit_check.py"


def test_what_a_server_takes_stands_beside_what_was_said_of_it(tmp_path: Path) -> None:
    model = str(tiny_model_folder(tmp_path / "model", max_position_embeddings=4096))
    out = tmp_path / "fit.json"
    command = [sys.executable, str(SCRIPT), model, "--streams", "1,2", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    blocks, memory, tpot, of_two = json.loads(out.read_text())
    assert blocks["predicted"] == pytest.approx(blocks["measured"], rel=0.05)
    assert blocks["measured"] >= 2048 / 16
    assert (memory["predicted"], memory["measured"]) == (None, None)  # there is no card
    assert of_two["predicted"] is None  # not predicted on a CPU
    # The tiny tokenizer cannot make prompts of an exact length, so what was said is left unproven: no success.
    assert (tpot["predicted"] > 0, tpot["measured"], done.returncode) == (True, None, 1)
    assert "| – (not measured) |" in done.stdout
    assert done.stdout.count("(over") == 0
