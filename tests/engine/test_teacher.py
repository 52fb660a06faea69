"""Teacher forcing gives what the engine computes, in every composition, and leaves the pool as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.builders import tiny_model_folder
from torch import Tensor

from firsttoken import LLM
from firsttoken.engine.teacher import Forcing
from firsttoken.errors import InvalidRequest
from firsttoken.types import SamplingParams

TEXTS = ("The quick brown fox jumps over the lazy dog.", "def add(left, right):", "今天天气很好")
WAYS = (
    Forcing(chunk=256),
    Forcing(chunk=5),
    Forcing(chunk=4, company=3),
    Forcing(chunk=8, single_from=3),
    Forcing(chunk=2, single_from=5, company=2),
)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = tiny_model_folder(tmp_path_factory.mktemp("tiny"), "qwen3")
    with LLM(str(folder), device="cpu", dtype="float32", cpu_threads=1) as llm:
        yield llm


def whole(llm: LLM, texts: list[list[int]], how: Forcing) -> list[Tensor]:
    logits = [torch.full((len(ids), llm.info.token_id_limit), float("nan")) for ids in texts]
    for scored in llm.force(texts, how):
        logits[scored.text][scored.start : scored.start + len(scored.logits)] = scored.logits
    return logits


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_every_position_has_the_engines_own_distribution(llm: LLM, how: Forcing) -> None:
    texts = [llm.tokenizer.encode(text) for text in TEXTS]
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1)
    expected = llm.generate(texts, params)
    for ids, logits, result in zip(texts, whole(llm, texts, how), expected, strict=True):
        logprobs = torch.log_softmax(logits, dim=-1)
        assert result.prompt_logprobs is not None
        scores = [each.logprob for each in result.prompt_logprobs[1:] if each is not None]
        mine = logprobs[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        torch.testing.assert_close(mine, torch.tensor(scores), rtol=1e-4, atol=1e-4)
        assert int(logits[-1].argmax()) == result.outputs[0].token_ids[0]


def test_the_prefix_cache_is_as_it_was(llm: LLM) -> None:
    prompt = llm.tokenizer.encode(TEXTS[0] * 4)
    params = SamplingParams(temperature=0.0, max_tokens=8)
    first = llm.generate([prompt], params)[0]
    whole(llm, [prompt, prompt], Forcing(chunk=7, company=2))
    again = llm.generate([prompt], params)[0]
    assert again.num_cached_tokens > 0
    assert again.outputs[0].token_ids == first.outputs[0].token_ids


def test_a_text_that_is_left_in_the_middle_gives_its_blocks_back(llm: LLM) -> None:
    before = llm._engine.pool.num_free
    scored = llm.force([llm.tokenizer.encode(TEXTS[0])], Forcing(chunk=4))
    next(scored)
    assert llm._engine.pool.num_free < before
    scored.close()
    assert llm._engine.pool.num_free == before
    llm._engine.check()


@pytest.mark.parametrize(
    ("texts", "how"),
    [
        ([[]], Forcing(chunk=4)),
        ([[1] * 2000], Forcing(chunk=4)),
        ([[1]] * 500, Forcing(chunk=1, company=500)),
        ([[1]], Forcing(chunk=1 << 20)),
    ],
)
def test_what_cannot_run_is_refused(llm: LLM, texts: list[list[int]], how: Forcing) -> None:
    with pytest.raises(InvalidRequest):
        list(llm.force(texts, how))
