from __future__ import annotations

from typing import Any

import pytest
import torch

from firsttoken.config import EngineConfig
from firsttoken.engine.device import Placement, place, read_memory
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
    assert placed(quantization="int4", dtype="float32").weights == "int4"
    assert placed(dtype="bfloat16").dtype == torch.bfloat16


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
