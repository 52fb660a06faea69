"""A model with an FP8 KV cache: its scales, its size, and answers that stay near those of the exact cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Literal

import pytest
import torch
from tests.builders import tiny_model_folder, write_tokenizer
from tests.engine.plain_forward import log_probs
from tests.engine.tiny_engine import Answer, TinyEngine, request
from tests.model.kv_files import KV_ALONE, SCHEME, scales, write_with_kv

from firsttoken import LLM
from firsttoken.cli.summary import summary
from firsttoken.engine.kv_scales import HEADROOM, measure_kv_scales
from firsttoken.engine.teacher import Forcing
from firsttoken.errors import ConfigError
from firsttoken.kernels.e4m3 import LARGEST
from firsttoken.types import SamplingParams

KVCacheDtype = Literal["auto", "none", "fp8"]
PROMPT = "The quick brown fox jumps over the lazy dog, and then the dog sleeps. " * 12


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("tiny"), request.param)


def exact_with(folder: Path, kv_cache_dtype: KVCacheDtype) -> LLM:
    return LLM(
        str(folder),
        device="cpu",
        dtype="float32",
        cpu_threads=1,
        kv_cache_memory=1 << 20,
        kv_cache_dtype=kv_cache_dtype,
    )


@pytest.fixture(scope="module")
def exact(folder: Path) -> Iterator[LLM]:
    with exact_with(folder, "auto") as llm:
        yield llm


@pytest.fixture(scope="module")
def small(folder: Path) -> Iterator[LLM]:
    with exact_with(folder, "fp8") as llm:
        yield llm


def test_the_same_memory_holds_as_many_times_the_tokens_as_a_number_has_bytes(exact: LLM, small: LLM) -> None:
    assert small.info.num_blocks == 4 * exact.info.num_blocks
    assert small.info.kv_bytes_per_token * 4 == exact.info.kv_bytes_per_token
    assert "FP8 (E4M3), a scale a head, measured at load" in summary(small.info, "http://here", 1.0, {})
    assert exact.info.kv_dtype == exact.info.kv_note == ""


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
    for layer, measured in zip(runner.kv, again, strict=True):
        assert layer.scales is not None
        assert torch.equal(layer.scales, measured)


@pytest.mark.parametrize(("shape", "share"), [((1,), "layer"), ((2, 1, 1), "head")], ids=["layer", "head"])
def test_a_checkpoints_scales_are_what_keys_and_values_are_rounded_with(
    shape: tuple[int, ...], share: str, tmp_path: Path
) -> None:
    stored = scales(shape)
    write_with_kv(tmp_path, "{0}_scale", stored)
    write_tokenizer(tmp_path)
    expected = [torch.stack([scale.float().reshape(-1).expand(2) for scale in pair]) for pair in stored]
    with exact_with(tmp_path, "fp8") as llm:
        assert llm.info.kv_note == f"the checkpoint's own scales, one a {share}"
        for layer, scale in zip(llm._runner.kv, expected, strict=True):
            assert layer.scales is not None
            assert torch.equal(layer.scales, scale)
        ids, limit, decoder = llm.tokenizer.encode(PROMPT)[:60], llm.info.token_id_limit, llm._runner.decoder
        logits = torch.cat([step.logits.clone() for step in llm.force([ids], Forcing(chunk=16))])
        found = logits[:, :limit].log_softmax(-1)
        plain = [log_probs(decoder, ids, len(ids), torch.float32, limit, kv_scales) for kv_scales in (expected, None)]
    torch.testing.assert_close(found, plain[0], atol=0.01, rtol=0)
    assert float((found - plain[1]).abs().max()) > 0.1  # which the same scales decide: they cut off the largest numbers


def test_scales_that_were_never_calibrated_are_measured(tmp_path: Path) -> None:
    ones = [(torch.ones(1), torch.ones(1)) for _ in range(2)]
    write_with_kv(tmp_path, "{0}_scale", ones)
    write_tokenizer(tmp_path)
    with exact_with(tmp_path, "fp8") as llm:
        assert llm.info.kv_note == "a scale a head, measured at load, as the checkpoint's are all 1.0"
        first = llm._runner.kv[0].scales
        assert first is not None
        assert not bool((first == 1).any())


def test_a_declared_cache_is_left_wide_on_a_cpu_and_one_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    write_with_kv(tmp_path, "{0}_scale", scales((1,)))
    write_tokenizer(tmp_path)
    with exact_with(tmp_path, "auto") as llm:
        assert llm.info.kv_dtype == ""
        assert "--kv-cache-dtype fp8" in summary(llm.info, "http://here", 1.0, {})
    refusing: list[KVCacheDtype] = ["auto", "fp8"]
    dynamic = KV_ALONE | {"kv_cache_scheme": SCHEME | {"dynamic": True}}
    write_with_kv(tmp_path, "{0}_scale", [], config=dynamic)
    for asked in refusing:
        with pytest.raises(ConfigError, match="dynamic scales"):
            exact_with(tmp_path, asked)
    with exact_with(tmp_path, "none") as llm:
        assert llm.info.kv_dtype == llm.info.kv_note == ""


def test_preemption_and_the_prefix_cache_change_no_answer_over_an_fp8_cache(folder: Path) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    draw = Random(0)
    asked = [
        request(f"r{i}", [draw.randrange(300) for _ in range(size)], params) for i, size in enumerate((30, 42, 17))
    ]

    def ids(answers: dict[str, Answer]) -> dict[str, list[int]]:
        return {name: answer.token_ids for name, answer in answers.items()}

    with TinyEngine(folder, fp8_cache=True) as roomy:
        undisturbed = ids(roomy.run_alone(asked))
        assert all(layer.k.dtype == torch.uint8 for layer in roomy.runner.kv)
        cached = roomy.run(asked)
        assert [cached[name].num_cached_tokens for name in undisturbed] == [28, 40, 16]
        roomy.engine.check()
    with TinyEngine(folder, num_blocks=20, fp8_cache=True) as cramped:
        preempted = ids(cramped.run(asked))
        assert cramped.engine.stats().counters["num_preemptions_total"] > 0
        cramped.engine.check()
    assert ids(cached) == preempted == undisturbed
