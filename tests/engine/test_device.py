from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from firsttoken.config import EngineConfig
from firsttoken.engine.device import Placement, gpu_precision, place, read_memory
from firsttoken.errors import ConfigError


def placed(no_kernels: str | None = None, **options: Any) -> Placement:
    config = EngineConfig(**({"device": "cpu"} | options), model="m", path="p")
    return place(config, "bfloat16", lambda: no_kernels)


def test_a_cpu_runs_the_low_bit_form_unless_told_otherwise() -> None:
    assert (placed().weights, placed().dtype) == ("keep", torch.float32)
    assert "--dtype float32" in placed().why  # how to get the exact mode
    for options in ({"dtype": "float32"}, {"quantization": "none"}):
        exact = placed(**options)
        assert (exact.weights, exact.dtype, exact.bytes_per_weight) == ("dense", torch.float32, 4.0)
    assert placed(quantization="int4").weights == "int4"
    assert placed(dtype="bfloat16").dtype == torch.bfloat16


@pytest.mark.parametrize("form", ["fp8", "int8", "int4"])
def test_beside_float32_a_cpu_takes_a_gpus_form_to_judge_it(form: Any) -> None:
    exact = placed("No C compiler was found.", quantization=form, dtype="float32")  # which it needs none for
    assert (exact.weights, exact.dtype, exact.judged) == ("dense", torch.float32, form)
    assert f"--quantization {form} does on a GPU" in exact.why
    assert placed(dtype="float32").judged is None
    if form != "fp8":
        assert placed(quantization=form).judged is None


def test_without_kernels_a_cpu_runs_float32_and_says_why() -> None:
    fallback = placed("No C compiler was found.")
    assert fallback.weights == "dense"
    assert "No C compiler was found." in fallback.why
    with pytest.raises(ConfigError, match=r"int8 cannot run here\. No C compiler"):
        placed("No C compiler was found.", quantization="int8")
    assert placed("No C compiler was found.", dtype="float32").weights == "dense"


def test_batch_limits_follow_each_other() -> None:
    default = placed()
    assert default.max_num_batched_tokens >= default.max_num_seqs
    assert placed(max_num_seqs=5000).max_num_batched_tokens >= 5000
    assert placed(max_num_batched_tokens=4).max_num_seqs == 4
    both = placed(max_num_seqs=3, max_num_batched_tokens=64)
    assert (both.max_num_seqs, both.max_num_batched_tokens) == (3, 64)


def test_threads_are_those_asked_for_or_at_least_one() -> None:
    assert placed(cpu_threads=3).cpu_threads == 3
    assert (placed().cpu_threads or 0) >= 1


def test_a_cpus_whole_free_memory_may_be_planned() -> None:
    memory = read_memory(torch.device("cpu"), 0.5)
    assert 0 < memory.budget == memory.free <= memory.total


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="--device cpu"):
        placed(device="cuda")
    assert placed(device="auto").device.type == "cpu"


def on_a_gpu(quantization: Any, dtype: torch.dtype = torch.bfloat16, *, has_kernels: bool = True) -> str:
    config = EngineConfig(model="m", path="p", quantization=quantization)
    return gpu_precision(config, (dtype, "why"), has_kernels=has_kernels)[1]


def test_a_gpu_keeps_quantised_weights_and_rounds_others_when_asked() -> None:
    assert on_a_gpu("auto") == "keep"
    assert on_a_gpu("none") == "dense"
    assert on_a_gpu("fp8") == "fp8"
    assert on_a_gpu("auto", torch.float32) == on_a_gpu("auto", has_kernels=False) == "dense"


def test_forms_that_a_device_has_no_kernels_for_are_refused() -> None:
    with pytest.raises(ConfigError, match="not in float32"):
        on_a_gpu("int4", torch.float32)
    with pytest.raises(ConfigError, match="needs Triton"):
        on_a_gpu("int4", has_kernels=False)
    with pytest.raises(ConfigError, match="on a CPU use int8"):
        placed(quantization="fp8")


def test_the_bytes_of_a_gpus_products_are_those_of_their_form() -> None:
    gpu = replace(placed(dtype="bfloat16"), device=torch.device("cuda"))
    assert replace(gpu, weights="keep").product_bytes(0.53) == 0.53
    assert replace(gpu, weights="keep").product_bytes(None) is None
    assert replace(gpu, weights="fp8").product_bytes(None) == 1.0
    assert replace(gpu, weights="dense").product_bytes(0.53) is None, "none widens them"
    assert placed().product_bytes(0.53) is None
