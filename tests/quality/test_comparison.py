"""Two forms of a tiny model, compared from end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.builders import tiny_model_folder

from firsttoken.cli.bench_quality import quality, settings_of
from firsttoken.errors import ConfigError, ModelError
from firsttoken.quality.records import Quality
from firsttoken.quality.run import compare_quality
from firsttoken.quality.side import measure
from firsttoken.quality.work import Amount, Settings

AMOUNT = Amount(tokens=90, decoded=3, answer_tokens=4, lengths=(300, 500, 900))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("tiny"), "qwen3")


def compared(a: str, b: str) -> Quality:
    told: list[str] = []
    found = compare_quality(settings_of(a, "--a"), settings_of(b, "--b"), AMOUNT, told.append, measure)
    assert told[0] == "A: loading"
    assert told[-1] == "B: reading texts"
    return found


def test_a_model_against_itself_is_at_no_distance(model: Path) -> None:
    exact = f"{model} --dtype float32 --cpu-threads 1"
    found = compared(exact, f"firsttoken serve {exact}")
    assert [(each.way, each.kind) for each in found.distance] == [
        (way, kind) for way in ("prefill", "decode") for kind in ("english", "chinese", "code", "all")
    ]
    assert found.distance[3].positions == 9 * 89
    assert found.distance[7].positions == 9 * 3
    assert all((each.kl, each.kl_p99, each.same_best) == (0, 0, 1) for each in found.distance)
    assert all(each.kl < 1e-6 for each in found.floor), "company changes roundings alone"
    assert found.agreement.same == found.agreement.answers == 12
    assert found.a.perplexity == found.b.perplexity
    assert [needle.asked for needle in found.b.needles] == [3, 3, 3]
    for side in (found.a, found.b):
        assert min(side.tpot, side.ttft, side.output_tokens_per_s, side.peak_bytes, side.kv_tokens) > 0


def test_a_coarser_form_is_further_away_and_smaller(model: Path) -> None:
    exact = f"{model} --dtype float32 --cpu-threads 1"
    found = compared(exact, f"{model} --dtype bfloat16 --cpu-threads 1")
    for way in (found.distance[3], found.distance[7]):
        assert 1e-6 < way.kl < 0.1
        assert way.kl_p99 > way.kl
    assert found.b.weight_bytes < found.a.weight_bytes
    assert found.a.perplexity[-1].value == pytest.approx(found.b.perplexity[-1].value, rel=0.1)
    assert found.a.perplexity[-1].value != found.b.perplexity[-1].value


def test_settings_are_those_of_serve() -> None:
    found = settings_of("firsttoken serve some/model --dtype bfloat16 --max-model-len 4K --revision v1", "--a")
    assert found.model == "some/model"
    assert (found.options["dtype"], found.options["max_model_len"]) == ("bfloat16", 4096)
    assert (found.options["revision"], found.options["hub"]) == ("v1", "huggingface")


@pytest.mark.parametrize("text", ["--dtype float32", 'demo "'])
def test_settings_without_a_model_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--b"):
        settings_of(text, "--b")


def test_a_model_that_is_not_there_is_told_before_the_other_is_measured(model: Path, tmp_path: Path) -> None:
    told = CliRunner().invoke(quality, ["--a", str(model), "--b", str(tmp_path / "none.gguf")])
    assert isinstance(told.exception, ModelError)
    assert not told.output


def test_lengths_beyond_the_context_are_refused_by_name(model: Path, tmp_path: Path) -> None:
    side = Settings(str(model), str(model), {"dtype": "float32", "cpu_threads": 1})
    with pytest.raises(ConfigError, match="--needle-lengths"):
        compare_quality(side, side, Amount(tokens=8, lengths=(4096,)), lambda text: None, measure)


def test_the_command_measures_each_side_in_a_process_of_its_own(model: Path, tmp_path: Path) -> None:
    small = ["--tokens", "70", "--decode-tokens", "1", "--answer-tokens", "2", "--needle-lengths", "200"]
    exact = f"{model} --dtype float32 --cpu-threads 1"
    command = [sys.executable, "-m", "firsttoken", "bench", "quality", "--a", exact]
    done = subprocess.run(
        [*command, "--b", exact, *small, "--json", "--out", "q.json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "q.json").read_text())
    assert found["schema"] == "firsttoken.quality/1"
    assert found["distance"][3]["kl"] == 0
    failed = subprocess.run(
        [*command[:-1], f"{exact} --max-model-len 10M", "--b", exact, *small],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert failed.returncode != 0
    assert failed.stderr.strip().splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in failed.stderr
