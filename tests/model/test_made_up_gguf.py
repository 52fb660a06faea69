"""GGUF files of random weights, as benchmarks/made_up_gguf.py writes them for a GPU's benchmark."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from firsttoken.model.config import load_config
from firsttoken.model.gguf import GGUFWeights
from firsttoken.model.tensor_names import EMBEDDING
from firsttoken.model.vocabulary import token_id_limit
from firsttoken.model.weights import dense
from tests.builders import tiny_model_folder

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "made_up_gguf.py"


@pytest.mark.parametrize(
    ("form", "kind", "head"),
    [("Q4_0", "int4-32", None), ("Q4_1", "int4-32-offsets", None), ("Q8_0", "int8-32", "int8-32")],
)
def test_a_made_up_file_is_the_folders_model_in_the_form(
    form: str, kind: str, head: str | None, tmp_path: Path
) -> None:
    folder, file = tiny_model_folder(tmp_path / "model"), tmp_path / "made-up.gguf"
    subprocess.run([sys.executable, str(SCRIPT), str(folder), str(file), "--form", form], check=True, timeout=120)
    given, made = load_config(folder), load_config(file)
    assert (made.kept_kinds, made.kept_head) == (((kind,) * 4,), head)
    same = ("bos_token_id", "eos_token_ids", "dtype", "default_sampling", "kept_bytes", "kept_kinds", "kept_head")
    assert replace(made, **{name: getattr(given, name) for name in same}) == given
    assert token_id_limit(file) == token_id_limit(folder)
    weights = GGUFWeights(file, made)  # checks every name and shape
    for name in (EMBEDDING, "model.layers.0.mlp.down_proj.weight"):
        values = dense(weights.take(name)).float()
        assert float(values.std()) == pytest.approx(0.02, rel=0.1)
        assert abs(float(values.mean())) < 0.005
    assert torch.equal(weights.take("model.norm.weight").tensor, torch.ones(made.hidden_size))  # type: ignore[arg-type]
