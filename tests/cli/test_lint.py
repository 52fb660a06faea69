"""`firsttoken lint` as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from firsttoken.cli.main import cli
from firsttoken.errors import ConfigError


def run(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["lint", *words], input=text, standalone_mode=False, catch_exceptions=False)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("vllm serve m/m", 0),
        ("vllm serve m/m --enable-prefix-caching", 0),  # a note
        ("vllm serve m/m --enforce-eager", 3),
        ("vllm serve m/m --enable-cuda-graph --enforce-eager", 4),
        ("ls -l", 0),
    ],
)
def test_the_exit_code_says_the_worst(command: str, code: int) -> None:
    assert run("--", *command.split()).return_value == code


def test_a_command_gets_its_faults_with_reasons_and_the_right_command() -> None:
    output = run("--", "vllm", "serve", "m/m", "--enable-cuda-graph", "--max-model-length", "4096").output
    assert "has no flag --enable-cuda-graph" in output
    assert "CUDA graphs are on unless --enforce-eager is given" in output
    assert "https://docs.vllm.ai" in output
    assert "Right: vllm serve m/m --max-model-len 4096" in output
    assert "1 command checked: 2 errors, 0 warnings, 0 notes." in output


def test_a_command_may_be_one_quoted_word_a_file_or_piped_text(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("vllm serve m/m \\\n  --enforce-eager\n")
    for result in (
        run("--", "vllm serve m/m --enforce-eager"),
        run(str(script)),
        run("--file", str(script)),
        run(text="vllm serve m/m --enforce-eager\n"),
        run("--file", "-", text="vllm serve m/m --enforce-eager\n"),
    ):
        assert result.return_value == 3
        assert "Right: vllm serve m/m" in result.output


def test_json_holds_every_finding_and_the_correction() -> None:
    (entry,) = json.loads(run("--json", "--", "vllm", "serve", "m/m", "--enforce-eager").output)
    assert entry["corrected"] == "vllm serve m/m"
    assert entry["program"] == "vllm"
    (finding,) = entry["findings"]
    assert finding["rule"] == "enforce-eager"
    assert finding["level"] == "warn"
    assert {"what", "why", "since", "source"} <= set(finding)


def test_the_card_and_the_version_that_a_command_is_for_can_be_given() -> None:
    command = ("--", "vllm", "serve", "Qwen/Qwen3-4B-Instruct-2507", "--swap-space", "4")
    assert run("--vllm-version", "0.10.2", *command).return_value == 0
    output = run("--gpu", "3060 12gb", *command).output
    assert "does not fit" in output or "One sequence of its full 262,144 tokens" in output


@pytest.mark.parametrize("name", ["start.sh", "scripts/start"])
def test_a_file_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(ConfigError, match=f"no file {name} to check"):
        run(name)


def test_nothing_that_lint_knows_is_said_so() -> None:
    assert "Nothing here that lint knows" in run("--", "ls", "-l").output
