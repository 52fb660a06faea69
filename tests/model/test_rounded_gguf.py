"""GGUF files whose layers are rounded to another form, as benchmarks/rounded_gguf.py writes them to judge that form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gguf import GGUFReader

from firsttoken.model.config import ModelConfig, load_config
from firsttoken.model.gguf import GGUFWeights
from firsttoken.model.tensor_names import expected_tensors
from firsttoken.model.weights import dense
from tests.builders import tiny_model_folder

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def _run(script: str, *arguments: object) -> None:
    words = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    subprocess.run(words, check=True, timeout=120)


def _numbers(file: Path, config: ModelConfig) -> dict[str, torch.Tensor]:
    weights = GGUFWeights(file, config)
    return {name: dense(weights.take(name)).float() for name in expected_tensors(config)}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    _run("made_up_gguf.py", tiny_model_folder(folder / "model"), folder / "base.gguf", "--form", "BF16")
    return folder / "base.gguf"


@pytest.mark.parametrize(
    ("form", "least", "most"),
    [("Q8_0", 0.003, 0.01), ("Q4_0", 0.06, 0.12), ("Q4_1", 0.06, 0.12), ("FP8_BLOCKS", 0.02, 0.03)],
)
def test_the_layers_matrices_alone_are_rounded(
    form: str, least: float, most: float, source: Path, tmp_path: Path
) -> None:
    file = tmp_path / "rounded.gguf"
    _run("rounded_gguf.py", source, file, "--form", form)
    before, after = (_numbers(each, load_config(each)) for each in (source, file))
    for name, numbers in before.items():
        if "layers" in name and numbers.dim() == 2:
            error = float((after[name] - numbers).norm() / numbers.norm())
            assert least < error < most, name
        else:
            assert torch.equal(after[name], numbers), name


def test_fp8_has_a_scale_for_each_block_that_a_matrix_fills_or_begins(source: Path, tmp_path: Path) -> None:
    file, name = tmp_path / "rounded.gguf", "model.layers.0.mlp.down_proj.weight"
    _run("rounded_gguf.py", source, file, "--form", "FP8_BLOCKS")
    before, after = (_numbers(each, load_config(each))[name] for each in (source, file))
    for row in range(0, before.shape[0], 128):
        for column in range(0, before.shape[1], 128):
            block = before[row : row + 128, column : column + 128]
            scale = block.abs().max() / 448.0
            expected = (block / scale).to(torch.float8_e4m3fn).float() * scale
            torch.testing.assert_close(after[row : row + 128, column : column + 128], expected, rtol=1e-6, atol=0.0)


def test_what_else_the_file_says_is_copied(demo_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "rounded.gguf"
    _run("rounded_gguf.py", demo_file, file, "--form", "Q4_1")  # its own form, whose numbers stay
    told, copied = GGUFReader(demo_file), GGUFReader(file)
    counts = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count"}
    assert {name: field.contents() for name, field in told.fields.items() if name not in counts} == {
        name: field.contents() for name, field in copied.fields.items() if name not in counts
    }
    assert [tensor.tensor_type for tensor in told.tensors] == [tensor.tensor_type for tensor in copied.tensors]
