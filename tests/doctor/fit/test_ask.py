from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from firsttoken.doctor.fit.ask import Device, fit, longest_context
from firsttoken.doctor.fit.devices import cpu_device, local_device, memory_device, sheet_device
from firsttoken.doctor.fit.form import fewer_bits, on_cpu, on_gpu, with_kv
from firsttoken.engine.device import Placement
from firsttoken.errors import ConfigError, OutOfMemory
from firsttoken.machine.cards import find_card
from firsttoken.machine.ceilings import MemoryCeiling
from firsttoken.machine.gpu import Gpu
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.machine.host import Host
from firsttoken.model.cost import decode_weight_bytes, weight_bytes
from firsttoken.model.kv_scheme import KVScheme
from firsttoken.model.memory_plan import GIB
from firsttoken.model.quantization import Quantization
from tests.doctor.fit.asks import BF16, QWEN3_4B, ask_about, form_of

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


@pytest.mark.parametrize("setting", H200["settings"], ids=lambda setting: setting["name"])
def test_three_settings_took_the_blocks_and_the_memory_that_were_planned(setting: dict[str, Any]) -> None:
    device = sheet_device(find_card("H200"), setting["utilization"], H200["memory_total"])
    plan = fit(
        ask_about(
            "H200",
            device=device,
            form=form_of(setting),
            context=setting["context"],
            max_num_seqs=setting["seqs"],
        )
    ).plan
    assert plan.num_blocks == pytest.approx(setting["kv_blocks"], rel=0.05)
    used = plan.weight_bytes + plan.activation_bytes + plan.runtime_bytes + plan.kv_bytes
    assert used == pytest.approx(setting["memory_gib"] * GIB, rel=0.05)


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


@pytest.mark.parametrize("limit", [{"max_num_seqs": 4}, {"max_num_batched_tokens": 8}])
def test_limits_that_contradict_the_concurrency_are_refused(limit: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="--concurrency 16 wants more sequences at once than the"):
        fit(ask_about("4090", concurrency=16, **limit))
    with pytest.raises(ConfigError, match="at least --max-num-seqs 4"):
        fit(ask_about("4090", max_num_seqs=4, max_num_batched_tokens=3))


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
    assert on_gpu("auto", "auto", QWEN3_4B, (7, 5)).name == "float16"
    assert on_gpu("auto", "auto", replace(QWEN3_4B, dtype="float16"), None).name == "float16"
    exact = on_gpu("float32", "auto", QWEN3_4B, (9, 0))
    assert (exact.weight, exact.kv, exact.flags) == (4, 4, {"dtype": "float32"})
    kept = on_gpu("auto", "auto", replace(QWEN3_4B, kept_bytes=0.53), (8, 9))
    assert kept.held(QWEN3_4B) == pytest.approx(8.045e9 - 3.633e9 * (2 - 0.53), rel=1e-3)
    assert on_cpu("bfloat16", "auto").flags == {"dtype": "bfloat16"}
    assert on_cpu("auto", "none").name == "float32"


@pytest.mark.parametrize("quantization", ["fp8", "int8", "int4"])
def test_rounded_weights_take_what_the_engine_plans(quantization: str) -> None:
    form = on_gpu("auto", quantization, QWEN3_4B, (8, 9))
    placement = Placement(
        device=torch.device("cuda"),
        device_name="a card",
        dtype=torch.bfloat16,
        weights=quantization,  # type: ignore[arg-type]  # each is one of its forms
        why="",
        cpu_threads=None,
        max_num_seqs=1,
        max_num_batched_tokens=1,
        max_step_ms=None,
        graphs=(1, 2),
    )
    each = (placement.bytes_per_weight, placement.product_bytes(None), placement.head_bytes)
    assert form.held(QWEN3_4B) == weight_bytes(QWEN3_4B, *each)
    assert form.read(QWEN3_4B) == decode_weight_bytes(QWEN3_4B, *each)
    assert ("int8 head" in form.name) == (quantization != "fp8")
    assert form.flags == {"quantization": quantization}
    found = fit(ask_about("3060", form=form))
    assert found.plan.kv_bytes > fit(ask_about("3060")).plan.kv_bytes + 3e9


def test_what_serve_refuses_is_refused() -> None:
    with pytest.raises(ConfigError, match="leave --dtype out"):
        on_cpu("bfloat16", "int4")
    with pytest.raises(ConfigError, match="on a GPU only"):
        on_cpu("auto", "fp8")
    with pytest.raises(ConfigError, match="not in float32"):
        on_gpu("float32", "fp8", QWEN3_4B, (9, 0))
    quantised = replace(QWEN3_4B, quantization=Quantization(method="fp8", layout="plain", form="fp8", group=0))
    with pytest.raises(ConfigError, match="quantised already"):
        on_gpu("auto", "int4", quantised, (9, 0))


def test_fewer_bits_come_the_most_exact_first() -> None:
    gpu = fewer_bits(on_gpu("auto", "auto", QWEN3_4B, (8, 6)), QWEN3_4B, (8, 6), gpu=True)
    made = [(form.flags.get("quantization"), form.flags.get("kv-cache-dtype")) for form in gpu]
    assert made == [(None, "fp8"), ("fp8", None), ("fp8", "fp8"), ("int4", None), ("int4", "fp8")]
    (cpu_form,) = fewer_bits(on_cpu("auto", "auto"), QWEN3_4B, None, gpu=False)
    assert cpu_form.flags == {"quantization": "int4"}
    assert [form.flags for form in fewer_bits(on_cpu("float32", "auto"), QWEN3_4B, None, gpu=False)] == [
        {"quantization": "int4"}
    ], "without float32, beside which rounding saves nothing"
    in_blocks = replace(QWEN3_4B, kept_bytes=0.53)
    (only,) = fewer_bits(on_gpu("auto", "auto", in_blocks, None), in_blocks, None, gpu=True)
    assert only.flags == {"kv-cache-dtype": "fp8"}
    assert fewer_bits(with_kv(gpu[3], "fp8", QWEN3_4B, gpu=True), QWEN3_4B, (8, 6), gpu=True) == ()
    assert fewer_bits(on_gpu("float32", "auto", QWEN3_4B, None), QWEN3_4B, None, gpu=True) == ()


def test_a_form_that_a_cpu_only_judges_takes_float32s_memory() -> None:
    for form in ("fp8", "int4"):
        judged = on_cpu("float32", form)
        assert judged.held(QWEN3_4B) == on_cpu("float32", "auto").held(QWEN3_4B)
        assert judged.flags == {"dtype": "float32", "quantization": form}
    with pytest.raises(ConfigError, match="on a GPU only"):
        on_cpu("auto", "fp8")
    with pytest.raises(ConfigError, match="leave --dtype out"):
        on_cpu("bfloat16", "int8")


def test_an_fp8_cache_holds_twice_the_tokens() -> None:
    plain, halved = fit(ask_about("4090")), fit(ask_about("4090", form=with_kv(BF16, "fp8", QWEN3_4B, gpu=True)))
    assert halved.plan.kv_tokens == pytest.approx(2 * plain.plan.kv_tokens, abs=16)
    assert halved.times.kv_bytes_per_token == 73_728
    assert halved.ask.flags == {"kv-cache-dtype": "fp8"}


def test_a_declared_fp8_cache_is_counted_where_serve_makes_one() -> None:
    declared = replace(QWEN3_4B, kv_scheme=KVScheme())
    own = with_kv(BF16, "auto", declared, gpu=True)
    assert (own.kv, own.flags) == (1, {})
    assert [form.flags for form in fewer_bits(own, declared, (9, 0), gpu=True)] == [
        {"quantization": "fp8"},
        {"quantization": "int4"},
    ]
    wide = with_kv(BF16, "none", declared, gpu=True)
    assert (wide.kv, wide.flags) == (2, {"kv-cache-dtype": "none"})
    assert with_kv(on_gpu("float32", "auto", declared, None), "auto", declared, gpu=True).kv == 4
    assert with_kv(on_cpu("bfloat16", "auto"), "auto", declared, gpu=False).kv == 2
    dynamic = replace(QWEN3_4B, kv_scheme=KVScheme("dynamic scales"))
    with pytest.raises(ConfigError, match="dynamic scales"):
        with_kv(BF16, "auto", dynamic, gpu=True)
    offered = fewer_bits(with_kv(BF16, "none", dynamic, gpu=True), dynamic, (9, 0), gpu=True)
    assert [form.flags["kv-cache-dtype"] for form in offered] == ["none", "none"]
