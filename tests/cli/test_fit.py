from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.qwen3_4b import CONFIG

from firsttoken.cli.main import main
from firsttoken.cli.serve import serve

MODEL = "Qwen/Qwen3-4B-Instruct-2507"


def run(*args: str, model: str = MODEL) -> int:
    with pytest.raises(SystemExit) as left:
        main(["fit", model, *args])
    return int(str(left.value.code))


def test_the_answer_names_every_part_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--gpu", "4090", "--context", "8K", "--concurrency", "4", "--slo", "tpot=20ms") == 0
    text = capsys.readouterr().out
    for part in ("weights", "activations", "KV cache", "7.49 GiB", "longest context", "4,096 + 256", "data sheet"):
        assert part in text
    assert f"firsttoken serve {MODEL} --max-model-len 8192" in text
    assert "Should 4 prompts of 7,936 tokens come in the same moment" in text
    assert "TPOT: 20.0 ms" in text


def test_a_refusal_names_what_fits_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--gpu", "3060", "--context", "64K") == 1
    text = capsys.readouterr().out
    assert "it does not fit" in text
    assert "a context of" in text
    assert "--max-model-len" in text


def test_as_json_both_answers_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--gpu", "H200", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fits"]
    assert found["memory"]["weight_bytes"] == 8_044_936_192
    assert [row["load"]["prompt"] for row in found["speed"]] == [32, 4096, 32_768]
    assert {judgement["verdict"] for judgement in found["judgements"]} <= {"met", "tune", "physics", "unknown"}
    assert f"firsttoken serve {MODEL} --quantization fp8" in [one["command"] for one in found["fewer_bits"]]
    assert run("--memory", "8GiB", "--json") == 1
    refused = json.loads(capsys.readouterr().out)
    assert not refused["fits"]
    assert refused["instead"][-1]["command"] == "firsttoken serve Qwen/Qwen3-1.7B"


@pytest.mark.parametrize(("context", "concurrency"), [(1, 1), (16, 1), (33, 8), (300, 3), (4352, 2), (20_000, 1)])
def test_any_context_has_its_figures(context: int, concurrency: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--gpu", "H200", "--context", str(context), "--concurrency", str(concurrency), "--json") == 0
    loads = [row["load"] for row in json.loads(capsys.readouterr().out)["speed"]]
    assert loads[-1]["streams"] == concurrency
    assert all(load["prompt"] + load["output"] <= max(context, 2) for load in loads)
    assert len({tuple(load.values()) for load in loads}) == len(loads)


def test_serve_takes_every_command_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    commands: list[str] = []
    for args in (["--gpu", "4090"], ["--gpu", "3070", "--context", "8K"], ["--gpu", "3080"]):
        run(*args, "--json")
        found = json.loads(capsys.readouterr().out)
        commands += [one["command"] for one in found.get("fewer_bits", []) + found.get("instead", [])]
    assert len(commands) >= 4
    for command in commands:
        program, name, *rest = shlex.split(command)
        assert (program, name) == ("firsttoken", "serve")
        assert serve.make_context("serve", rest).params["model"].startswith("Qwen/")


def test_a_profile_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chat.toml"
    assert run("--gpu", "4090", "--use", "chat", "--write", str(path)) == 0
    assert f"serve --config {path}" in capsys.readouterr().out
    assert "max-model-len = 32768" in path.read_text()
    assert run("--gpu", "4090", "--write", str(path)) == 2
    assert run("--gpu", "4090", "--use", "chat", "--write", "chat.txt") == 2


def test_a_profile_of_a_folder_names_the_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    assert run("--gpu", "4090", "--use", "chat", model="my model") == 0
    assert f'model = "{folder}"' in capsys.readouterr().out
    assert run("--gpu", "4090", model="my model") == 0
    assert "firsttoken serve 'my model'" in capsys.readouterr().out


def test_mistakes_are_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--gpu", "voodoo") == 2
    assert "known are" in capsys.readouterr().err
    assert run("--gpu", "H200", "--slo", "e2e=2s") == 2
    assert "knows ttft and tpot" in capsys.readouterr().err
    assert run("--gpu", "H200", "--context", "300000") == 2
    assert "262144" in capsys.readouterr().err
