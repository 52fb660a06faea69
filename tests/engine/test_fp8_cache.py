"""A model with an FP8 KV cache: its scales, its size, and answers that stay near those of the exact cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.builders import tiny_model_folder

from firsttoken import LLM
from firsttoken.engine.kv_scales import HEADROOM, measure_kv_scales
from firsttoken.engine.teacher import Forcing
from firsttoken.kernels.e4m3 import LARGEST
from firsttoken.types import SamplingParams

PROMPT = "The quick brown fox jumps over the lazy dog, and then the dog sleeps. " * 12


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("tiny"), request.param)


@pytest.fixture(scope="module")
def exact(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), device="cpu", dtype="float32", cpu_threads=1, kv_cache_memory=1 << 20) as llm:
        yield llm


@pytest.fixture(scope="module")
def small(folder: Path) -> Iterator[LLM]:
    with LLM(
        str(folder), device="cpu", dtype="float32", cpu_threads=1, kv_cache_memory=1 << 20, kv_cache_dtype="fp8"
    ) as llm:
        yield llm


def test_the_same_memory_holds_as_many_times_the_tokens_as_a_number_has_bytes(exact: LLM, small: LLM) -> None:
    assert small.info.num_blocks == 4 * exact.info.num_blocks
    assert small.info.kv_bytes_per_token * 4 == exact.info.kv_bytes_per_token
    assert "FP8" in small.info.kv_dtype
    assert exact.info.kv_dtype == ""


@pytest.mark.parametrize("how", [Forcing(chunk=64), Forcing(chunk=256, single_from=200)], ids=str)
def test_distributions_over_a_long_context_stay_near(exact: LLM, small: LLM, how: Forcing) -> None:
    ids = exact.tokenizer.encode(PROMPT)[:240]
    for one, other in zip(exact.force([ids], how), small.force([ids], how), strict=True):
        truth, mine = (torch.log_softmax(each.logits, dim=-1) for each in (one, other))
        kl = (truth.exp() * (truth - mine)).sum(-1)
        assert float(kl.max()) < 0.05
        assert float((one.logits - other.logits).norm() / one.logits.norm()) < 0.05
        assert not torch.equal(one.logits, other.logits)


def test_a_cached_prefix_gives_the_answer_of_a_fresh_one(small: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    first, again = (small.generate(PROMPT, params)[0] for _ in range(2))
    assert again.num_cached_tokens > first.num_cached_tokens == 0
    assert again.outputs[0].token_ids == first.outputs[0].token_ids


def test_scales_are_powers_of_two_that_leave_room_above_what_was_seen(small: LLM) -> None:
    runner = small._runner
    for layer in runner.kv:
        assert layer.scales is not None
        assert layer.k.dtype == torch.uint8
        assert bool((torch.frexp(layer.scales).mantissa == 0.5).all())
    small.generate(PROMPT, SamplingParams(max_tokens=1))
    for layer in runner.kv:
        for codes in (layer.k, layer.v):
            seen = codes.view(torch.float8_e4m3fn).float().abs().max()
            assert LARGEST / HEADROOM / 16 < float(seen) < LARGEST
    again = measure_kv_scales(runner.decoder, small.info.token_id_limit, small.info.bos_token_id)
    for layer, scales in zip(runner.kv, again, strict=True):
        assert layer.scales is not None
        assert torch.equal(layer.scales, scales)
