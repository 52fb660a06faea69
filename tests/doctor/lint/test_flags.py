"""Flags against the tables: abbreviations, underscores, negations, versions, values."""

from __future__ import annotations

import pytest

from firsttoken.cli.lint import own_table
from firsttoken.doctor.lint.linter import Linter
from firsttoken.doctor.lint.table import load_table, nearest

LINTER = Linter(firsttoken=own_table)


def rules(text: str, linter: Linter = LINTER) -> list[str]:
    found = linter.check_text(text)
    return [finding.rule for checked in found for finding in checked.findings if finding.level != "note"]


@pytest.mark.parametrize(
    "flags",
    [
        "--max_model_len 4096",  # vLLM takes both forms
        "--tensor-parallel 2",  # argparse takes a beginning
        "--no-enable-log-requests",
        "--disable-log-requests",  # of 0.33: the pair of --enable-log-requests
        "-tp 2 -O3 -q fp8",
        "--compilation-config.mode 3",
        "--max-model-len -1",
        "--max-model-len auto",
        "--served-model-name a b c",
        "--hf-token",
    ],
)
def test_forms_that_vllm_reads_are_no_fault(flags: str) -> None:
    assert rules(f"vllm serve m/m {flags}") == []


def test_an_abbreviation_of_several_flags_is_a_fault_that_lists_them() -> None:
    (checked,) = LINTER.check_text("vllm serve m/m --max-num 8")
    assert checked.findings[0].rule == "flag-unknown"
    assert "--max-num-seqs" in checked.findings[0].why


def test_what_a_version_lacks_depends_on_the_version() -> None:
    command = "vllm serve m/m --guided-decoding-backend xgrammar"
    assert rules(command) == ["flag-removed"]
    assert rules(command, Linter(firsttoken=own_table, versions={"vllm": "0.10.2"})) == []
    newer = "vllm serve m/m --attention-backend FLASHINFER"
    assert rules(newer) == []
    assert rules(newer, Linter(firsttoken=own_table, versions={"vllm": "0.10.2"})) == ["flag-not-there-yet"]


def test_the_version_of_an_image_counts() -> None:
    command = "docker run --gpus all --ipc=host -p 8000:8000 vllm/vllm-openai:{} --model m/m --swap-space 8"
    assert rules(command.format("v0.10.2")) == []
    assert rules(command.format("latest")) == ["flag-removed"]


def test_a_variable_as_value_is_not_judged() -> None:
    assert rules("vllm serve $MODEL --max-model-len $LEN --dtype ${TYPE} --gpu-memory-utilization $SHARE") == []


def test_a_variable_that_is_set_before_is_judged_by_its_value() -> None:
    assert rules("SHARE=90\nvllm serve m/m --gpu-memory-utilization $SHARE") == ["memory-share-in-percent"]


@pytest.mark.parametrize(
    ("flags", "rule"),
    [
        ("--dtype bfloat", "value-wrong"),
        ("--port eight", "value-wrong"),
        ("--seed 1.5", "value-wrong"),
        ("--max-model-len 8k8", "value-wrong"),
        ("--speculative-config {method:ngram}", "value-wrong"),
        ("--port", "value-missing"),
        ("--trust-remote-code false", "switch-with-value"),
        ("--port 8000 --port 8001", "repeated"),
        ("--enable-log-requests --no-enable-log-requests", "contradiction"),
    ],
)
def test_a_value_that_the_server_stops_at_is_named(flags: str, rule: str) -> None:
    assert rule in rules(f"vllm serve m/m {flags}")


def test_own_flags_come_from_the_commands_themselves() -> None:
    assert rules("firsttoken serve demo --max-model-len 32K --max-body-size 8MiB --engine-dead restart") == []
    assert rules("firsttoken serve demo --engine-dead reboot") == ["value-wrong"]
    assert rules("firsttoken bench run --concurency 4") == ["flag-unknown"]
    assert rules("firsttoken bench compare a.json b.json c.json") == []
    assert rules("python -m firsttoken serve demo --max-model-len 4K") == []
    assert rules("python -m firsttoken serve demo --max-model-length 4K") == ["flag-unknown"]
    assert rules("firsttoken --help") == []
    (checked,) = LINTER.check_text("firsttoken bench runn")
    assert checked.corrected == "firsttoken bench run"


def test_a_quoted_word_with_spaces_is_a_value_though_it_begins_as_a_flag() -> None:
    assert rules("firsttoken tune --model m/m --flags '--load-format dummy --max-model-len 8192' --budget 5m") == []
    assert rules("firsttoken tune --model m/m --flags --budget 5m") == ["value-missing"]
    assert rules("""vllm serve m/m --lora-modules a=b --speculative-config='{"method": "ngram"}' --portt 1""") == [
        "flag-unknown"
    ]


def test_servers_that_a_benchmark_starts_are_checked() -> None:
    found = LINTER.check_text("firsttoken bench ab --a 'vllm serve m/m' --b 'vllm serve m/m --enforce-eager' --out ab")
    assert [(one.text, one.corrected) for one in found[1:]] == [
        ("vllm serve m/m", None),
        ("vllm serve m/m --enforce-eager", "vllm serve m/m"),
    ]
    assert rules("firsttoken bench ab --a 'vllm serve m/m' --b 'firsttoken serve demo' --out ab") == []


def test_a_fault_of_the_whole_line_hides_no_fault_of_a_flag() -> None:
    (checked,) = LINTER.check_text("vllm serve --model m/m --enable-cuda-graph --max-model-length 4096")
    assert [finding.rule for finding in checked.findings] == ["flag-unknown", "flag-unknown", "model-flag-of-serve"]
    assert checked.corrected == "vllm serve m/m --max-model-len 4096"


def test_a_word_of_the_same_parts_in_another_order_is_near() -> None:
    table = load_table("vllm")
    assert table.nearest("--memory-utilization-gpu") == "--gpu-memory-utilization"
    assert table.nearest("--zzz") is None
    assert nearest("powersafe", ["powersave", "performance"]) == "powersave"
