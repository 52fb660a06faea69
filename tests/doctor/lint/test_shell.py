"""Shell text as commands, and what wraps them."""

from __future__ import annotations

import pytest

from firsttoken.doctor.lint.shell import commands, join
from firsttoken.doctor.lint.unwrap import unwrap

SCRIPT = """#!/bin/bash
MODEL=Qwen/Qwen3-4B-Instruct-2507  # the model
export CUDA_VISIBLE_DEVICES=0
VLLM_X=1 nohup vllm serve $MODEL \\
  --port 8000 \\
  --speculative-config '{"a": 1, "b": "x;y"}' > log.txt 2>&1 &
cd /tmp && vllm serve "$MODEL" --max-model-len=${LEN:-4096} | tee log; sleep 5
cat <<EOF > x
vllm serve foo --bad
EOF
if [ -f x ]; then vllm serve y; fi
"""


def test_a_script_is_cut_into_its_commands_with_values_of_variables() -> None:
    found = [command for command in commands(SCRIPT) if "vllm" in command.words]
    model = "Qwen/Qwen3-4B-Instruct-2507"
    assert [command.words[command.words.index("vllm") :] for command in found] == [
        ["vllm", "serve", model, "--port", "8000", "--speculative-config", '{"a": 1, "b": "x;y"}'],
        ["vllm", "serve", model, "--max-model-len=4096"],
        ["vllm", "serve", "y"],
    ]
    assert [command.line for command in found] == [4, 7, 11]
    assert [command.background for command in found] == [True, False, False]
    assert found[0].variables == {"VLLM_X": "1"}
    assert found[0].exported["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.parametrize(
    "line",
    [
        ": 1699999999:0;vllm serve m",  # zsh
        "- cmd: vllm serve m",  # fish
        "  501  vllm serve m",  # bash's history
        "$ vllm serve m",
        "vllm serve m # vllm serve n",
        "vllm serve \\\n  m",
        "vllm serve m 2>/dev/null &> log",
        "vllm serve 'm'",
    ],
)
def test_forms_of_history_and_page_give_the_same_command(line: str) -> None:
    assert [command.words for command in commands(line)] == [["vllm", "serve", "m"]]


def test_text_that_is_no_shell_is_left_out_and_never_an_error() -> None:
    assert commands("it's only prose (really") == []
    assert commands("") == []


def test_what_a_substitution_gives_is_not_known() -> None:
    (command,) = commands("vllm serve m --host $(hostname -I | awk '{print $1}') --port 8000")
    assert command.words == ["vllm", "serve", "m", "--host", "$_", "--port", "8000"]


@pytest.mark.parametrize(
    "words",
    [["a b", "c"], ["$MODEL", "--x"], ['{"a": "b"}'], ["it's"], ["", "x"], ["a;b", "c|d"]],
)
def test_joined_words_are_read_back_as_they_were(words: list[str]) -> None:
    assert commands("run " + join(words))[0].words[1:] == words


@pytest.mark.parametrize(
    ("line", "inner", "variables"),
    [
        ("sudo -u me env A=1 nohup vllm serve m", ["vllm", "serve", "m"], {"A": "1"}),
        ("numactl -N 0 -m 0 taskset 0xf vllm serve m", ["vllm", "serve", "m"], {}),
        ("uv run --with vllm vllm serve m", ["vllm", "serve", "m"], {}),
        ("conda run -n llm python -m x", ["python", "-m", "x"], {}),
        ("timeout -k 5 60 vllm serve m", ["vllm", "serve", "m"], {}),
        (
            "docker run --rm -it --gpus all -e A=b vllm/vllm-openai:v0.10.2 --model m",
            ["vllm", "serve", "--model", "m"],
            {"A": "b"},
        ),
        ("docker exec -it box vllm serve m", ["vllm", "serve", "m"], {}),
        ("podman run --entrypoint python3 img -m x", ["python3", "-m", "x"], {}),
    ],
)
def test_wrappers_come_off_a_command(line: str, inner: list[str], variables: dict[str, str]) -> None:
    found = unwrap(commands(line)[0].words)
    assert found.words == inner
    assert found.variables == variables


def test_wrappers_go_back_around_corrected_words() -> None:
    words = commands("sudo docker run -e BAD=1 -e GOOD=2 --ipc=host vllm/vllm-openai:latest --model m --bad")[0].words
    inner = unwrap(words)
    assert inner.container is not None
    assert inner.container.tag == "latest"
    whole = inner.wrap([*inner.words[:-1], "--good"], ("BAD",), ("--gpus", "all"))
    expected = "sudo docker run -e GOOD=2 --ipc=host --gpus all vllm/vllm-openai:latest --model m --good"
    assert join(whole) == expected
