"""Kernels compiled ahead of time, for a card that is not here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.builders import tiny_config, tiny_tensors, write_tokenizer

pytest.importorskip("triton")

from tests.model.gguf_files import write_gguf

from firsttoken.cli.compiled_kernels import facts
from firsttoken.engine.early_builds import EarlyBuilds
from firsttoken.kernels.gpu.card_facts import CardFacts
from firsttoken.kernels.gpu.kernel_builds import KernelBuilds
from firsttoken.kernels.gpu.kernel_list import Wanted, built_mark
from firsttoken.machine.cards import cards

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = ("--max-num-seqs", "1", "--max-num-batched-tokens", "1")
NO_SUCH = Wanted("firsttoken.kernels.gpu.draw", "no_such_kernel", "", "")


def run(*command: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Where kernels are compiled, not interpreted."""
    unset = ("TRITON_INTERPRET", "TRITON_DEFAULT_FP_FUSION")  # the second is the package's to set
    environ = {name: value for name, value in os.environ.items() if name not in unset}
    environ |= {"TRITON_CACHE_DIR": str(cache), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=REPOSITORY, env=environ, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    config = tiny_config("qwen3") | {"hidden_size": 128, "intermediate_size": 256}
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def compiled(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The cache that the command filled, and what it said."""
    cache = tmp_path_factory.mktemp("cache")
    result = run("firsttoken", "kernels", "compile", str(folder), "--gpu", "h200", *SETTINGS, cache=cache)
    assert result.returncode == 0, result.stderr
    return cache, result.stdout


def test_the_command_compiles_once_and_says_where(folder: Path, compiled: tuple[Path, str]) -> None:
    cache, said = compiled
    assert "kernels for NVIDIA H200 (compute capability 9.0)" in said
    assert f"Compiled into {cache}" in said
    again = run("firsttoken", "kernels", "compile", str(folder), "--gpu", "h200", *SETTINGS, cache=cache)
    assert f"are in {cache} already" in again.stdout


def test_a_start_finds_every_kernel_compiled(folder: Path, compiled: tuple[Path, str]) -> None:
    """The same steps compile again, and nothing new comes into the cache."""
    cache, _ = compiled
    result = run("tests.kernels.compile_again", str(folder), *SETTINGS[1::2], cache=cache)
    assert result.returncode == 0, result.stderr
    assert "FP_FUSION" not in result.stderr, "Triton 3.9 warns where it is left to the default"
    counts = json.loads(result.stdout)
    assert counts["before"] == counts["after"]
    names = {"prepare_rows", "row_attention", "chunk_attention", "rope_cache", "embedding", "matvec", "rms_norm"}
    assert names | {"argmax_slices", "argmax_merge", "best_of_slices", "draw"} <= {
        name.removesuffix("_kernel") for name in counts["names"]
    }


def test_kernels_of_a_gguf_files_own_blocks_are_compiled_ahead_too(tmp_path: Path) -> None:
    config = tiny_config("qwen3") | {"hidden_size": 128, "intermediate_size": 256}
    file, cache = tmp_path / "model.gguf", tmp_path / "cache"
    write_gguf(file, config, tiny_tensors(config), "Q4_0", others={"layers.1.mlp.down": "Q8_0", "lm_head": "F16"})
    result = run("firsttoken", "kernels", "compile", str(file), "--gpu", "h200", *SETTINGS, cache=cache)
    assert result.returncode == 0, result.stderr
    compiled = [json.loads(path.read_text()).get("name") for path in cache.rglob("quant*.json")]
    again = run("tests.kernels.compile_again", str(file), *SETTINGS[1::2], cache=cache)
    counts = json.loads(again.stdout)
    assert counts["before"] == counts["after"], again.stderr
    assert counts["names"].count("quant_fixed_kernel") == compiled.count("quant_fixed_kernel") >= 5, compiled
    assert "matvec_kernel" in counts["names"], "the head's"


def test_every_card_of_the_table_can_be_compiled_for() -> None:
    assert all(facts(card).shared_bytes >= 99 * 1024 for card in cards())


def test_for_a_card_that_nobody_knows_one_sentence_says_what_happens(folder: Path, tmp_path: Path) -> None:
    result = run("firsttoken", "kernels", "compile", str(folder), "--gpu", "toaster", cache=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("Error: No card 'toaster' is in the table")
    assert result.stderr.rstrip().endswith("A first start on another card compiles what it needs by itself.")


def test_a_mark_is_for_the_kernels_as_they_are() -> None:
    wanted = Wanted("module", "kernel", "form", source="as it is")
    changed = Wanted("module", "kernel", "form", source="changed")
    card = CardFacts("NVIDIA H200", (9, 0), 132, 227 * 1024)
    assert built_mark([wanted], card) == built_mark([wanted], card)
    assert built_mark([wanted], card) != built_mark([changed], card)
    assert built_mark([wanted], card) != built_mark([wanted], replace(card, capability=(8, 9)))


def test_what_cannot_be_compiled_is_named_and_leaves_no_mark(tmp_path: Path) -> None:
    builds = KernelBuilds([NO_SUCH], (9, 0), processes=2)
    told: list[float] = []
    early = EarlyBuilds(builds, tmp_path / "mark")
    early.finish(told.append)
    assert len(builds.failures) == 1
    assert "no_such_kernel: AttributeError" in builds.failures[0]
    assert not (tmp_path / "mark").exists()
    assert told[-1] == 1.0


def test_all_compiled_leaves_a_mark_for_later_starts(tmp_path: Path) -> None:
    answers = (sys.executable, "-c", "import sys\nfor _ in sys.stdin: print(flush=True)")
    early = EarlyBuilds(KernelBuilds([NO_SUCH], (9, 0), 1, answers), tmp_path / "mark")
    early.finish(lambda _: None)
    assert (tmp_path / "mark").exists()


def test_killed_processes_are_told_and_nobody_waits_for_them() -> None:
    jobs = [Wanted("module", f"kernel_{i}", "", "") for i in range(3)]
    dies = (sys.executable, "-c", "import sys; sys.stdin.readline()")
    builds = KernelBuilds(jobs, (9, 0), 2, dies)
    builds.wait(lambda _: None)
    assert sorted(builds.failures) == [
        "kernel_0: its process was killed, perhaps for want of memory",
        "kernel_1: its process was killed, perhaps for want of memory",
        "kernel_2: no process was left to compile it",
    ]


def test_a_process_that_dies_between_two_kernels_is_told_without_a_traceback() -> None:
    jobs = [Wanted("module", f"kernel_{i}", "", "") for i in range(3)]
    leaves = (sys.executable, "-c", "import os; os.read(0, 1 << 16); os.close(0); os.write(1, b'\\n')")
    builds = KernelBuilds(jobs, (9, 0), 1, leaves)
    builds.wait(lambda _: None)
    assert builds.failures == [
        "kernel_1: its process was killed, perhaps for want of memory",
        "kernel_2: no process was left to compile it",
    ]


def test_processes_that_cannot_be_started_are_the_reason_of_each_kernel(tmp_path: Path) -> None:
    jobs = [Wanted("module", f"kernel_{i}", "", "") for i in range(2)]
    builds = KernelBuilds(jobs, (9, 0), 2, (str(tmp_path / "none"),))
    builds.wait(lambda _: None)
    assert [failure.partition(" (")[0] for failure in builds.failures] == [
        "kernel_0: a process could not be started",
        "kernel_1: a process could not be started",
    ]
