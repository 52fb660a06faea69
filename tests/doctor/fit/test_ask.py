from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from firsttoken.doctor.fit.ask import Device, fit, longest_context
from firsttoken.doctor.fit.devices import cpu_device, local_device, memory_device
from firsttoken.doctor.fit.form import dense_gpu, on_cpu
from firsttoken.errors import ConfigError, OutOfMemory
from firsttoken.machine.ceilings import MemoryCeiling
from firsttoken.machine.gpu import Gpu
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.machine.host import Host
from firsttoken.model.memory_plan import GIB
from tests.doctor.fit.asks import ask_about

H200 = json.loads(Path(__file__).with_name("h200.json").read_text())


@pytest.mark.parametrize("start", H200["starts"], ids=lambda start: start["what"])
def test_the_kv_cache_of_an_h200_is_what_its_server_took(start: dict[str, int]) -> None:
    found = fit(ask_about("H200", context=40_960, max_num_seqs=256))
    assert found.plan.num_blocks == pytest.approx(start["kv_blocks"], rel=0.05)


@pytest.mark.parametrize("run", H200["nvml_used"], ids=lambda run: run["what"])
def test_all_the_memory_is_what_the_driver_counted(run: dict[str, int]) -> None:
    plan = fit(ask_about("H200", context=40_960, max_num_seqs=256)).plan
    used = plan.weight_bytes + plan.activation_bytes + plan.runtime_bytes + plan.kv_bytes
    assert used == pytest.approx(run["most"] - run["idle"], rel=0.05)


def test_how_many_sequences_fit_is_counted_in_whole_blocks() -> None:
    found = fit(ask_about("4090"))
    assert found.sequences(16) == 128  # the steps hold no more
    assert found.sequences(20_000) * 1250 <= found.plan.num_blocks < (found.sequences(20_000) + 1) * 1250
    assert found.longest == found.context == found.plan.kv_tokens


def test_more_sequences_than_the_cache_holds_at_once_do_not_fit() -> None:
    assert fit(ask_about("4090", context=8192, concurrency=10)).sequences(8192) >= 10
    with pytest.raises(OutOfMemory, match=r"40 sequences of 8192 tokens need 45\.00 GiB of KV cache at once"):
        fit(ask_about("4090", context=8192, concurrency=40))


def test_the_longest_context_is_the_last_that_fits() -> None:
    ask = ask_about("4090", concurrency=3)
    longest = longest_context(ask, 262_144)
    assert longest is not None
    assert fit(replace(ask, context=longest)).sequences(longest) == 3
    with pytest.raises(OutOfMemory):
        fit(replace(ask, context=longest + 16))
    assert longest_context(ask_about("H200"), 10_000_000) == 262_144


def test_the_flags_are_those_that_differ_from_what_serve_chooses() -> None:
    assert ask_about("4090").command() == "firsttoken serve Qwen3-4B"
    asked = ask_about("4090", context=4096, concurrency=200, max_num_batched_tokens=2048)
    flags = " --max-model-len 4096 --max-num-seqs 200 --max-num-batched-tokens 2048"
    assert asked.command() == f"firsttoken serve Qwen3-4B{flags}"
    roomy = replace(asked.device.memory, utilization=0.95)
    assert replace(asked, device=replace(asked.device, memory=roomy)).flags["gpu-memory-utilization"] == "0.95"


def cpu(gib: float) -> Device:
    host = Host(cores=2, memory_total=32 * GIB, memory_available=int(gib * GIB))
    return cpu_device(host, MemoryCeiling(20e9, 2, "2026-12-01"))


def test_a_cpu_gets_the_pool_that_is_asked_for_and_the_flag_that_says_so() -> None:
    ask = ask_about("4090", device=cpu(24), form=on_cpu("auto", "auto"), context=4096, concurrency=4)
    found = fit(ask)
    assert found.sequences(4096) >= 4
    assert found.ask.flags["kv-cache-memory"] == str(4 * 4096 * 294_912)
    assert "kv-cache-memory" not in fit(replace(ask, concurrency=1)).ask.flags
    with pytest.raises(OutOfMemory):
        fit(replace(ask, concurrency=30))


def test_a_card_at_hand_has_what_is_free_and_its_own_ceilings() -> None:
    gpu = Gpu(0, "NVIDIA GeForce RTX 4090", 24 * GIB, 12 * GIB, "580.95")
    measured = Ceilings(gpu.name, 0.93e12, 0.9e12, 150e12, 0, "2026-12-01", gpu.driver)
    device = local_device(gpu, measured, 0.9)
    assert (device.memory.budget, device.rates.read, device.rates.from_sheet) == (12 * GIB, 0.93e12, False)
    assert local_device(gpu, None, 0.9).rates.read == 1.008e12  # by its data sheet
    assert "doctor ceilings" in local_device(replace(gpu, name="A new card"), None, 0.9).rates.origin


def test_a_card_of_which_only_the_memory_is_known_has_no_speed() -> None:
    found = fit(ask_about("4090", device=memory_device(12 * GIB, 0.9)))
    assert found.plan.kv_tokens == fit(ask_about("3060")).plan.kv_tokens
    assert found.ask.device.rates.read is None


def test_forms_are_what_serve_gives() -> None:
    assert dense_gpu("auto", (7, 5), "bfloat16").name == "float16"
    assert dense_gpu("auto", None, "float16").name == "float16"
    exact = dense_gpu("float32", (9, 0), "bfloat16")
    assert (exact.weight, exact.kv, exact.flags) == (4, 4, {"dtype": "float32"})
    assert on_cpu("bfloat16", "auto").flags == {"dtype": "bfloat16"}
    assert on_cpu("auto", "none").name == "float32"
    with pytest.raises(ConfigError, match="leave --dtype out"):
        on_cpu("bfloat16", "int4")
