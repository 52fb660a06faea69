"""How far a whole engine is from a float64 forward pass, beside a plain pass in its own precision.

On a GPU with the 4B model's shapes in bfloat16, elsewhere with a tiny model in float32.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders import tiny_config
from tests.engine.plain_forward import log_probs
from tests.qwen3_4b import CONFIG

from firsttoken.config import EngineConfig
from firsttoken.engine.engine import Engine
from firsttoken.engine.loader import Loaded, load
from firsttoken.model.decoder import Decoder
from firsttoken.types import GenerateRequest, SamplingParams

ON_GPU = torch.cuda.is_available()
SHAPES = CONFIG | {"num_hidden_layers": 4} if ON_GPU else tiny_config(torch_dtype="float32")
VOCABULARY = int(SHAPES["vocab_size"])
LENGTHS = (3, 17, 130, 700, 1500) if ON_GPU else (3, 17, 130)
TOKENS = 24
WORST = 1.25 if ON_GPU else 2.0  # of the plain pass's error; a float32 engine's sums have another order than torch's

MODES: dict[str, dict[str, Any]] = {
    "graphs": {},
    "eager": {"enforce_eager": True},
    "chunks": {"max_num_batched_tokens": 64},
}


@dataclass
class Answer:
    prompt: list[int]
    ids: list[int]
    logprobs: list[float]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shapes")
    (path / "config.json").write_text(json.dumps(SHAPES))
    return path


@pytest.fixture(scope="module", params=MODES)
def loaded(request: pytest.FixtureRequest, folder: Path) -> Iterator[Loaded]:
    config = EngineConfig(
        model="shapes",
        path=str(folder),
        load_format="dummy",
        dtype="bfloat16" if ON_GPU else "float32",
        max_model_len=2048 if ON_GPU else 256,
        kv_cache_memory=1 << 30 if ON_GPU else 1 << 26,
        max_num_seqs=8,
        **MODES[request.param],
    )
    found = load(config, lambda phase, fraction: None)
    while found.engine.improve():
        pass
    yield found
    found.runner.close()


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")  # shown where a test fails
    draw = random.Random(seed)
    return [[draw.randrange(VOCABULARY) for _ in range(length)] for length in LENGTHS]


def test_its_error_is_that_of_a_plain_pass_and_clear_choices_are_the_same(
    loaded: Loaded, prompts: list[list[int]]
) -> None:
    fresh = answers(loaded.engine, prompts)
    again = answers(loaded.engine, prompts)  # from the prefix cache
    assert measure(loaded.runner.decoder, fresh) <= WORST
    assert measure(loaded.runner.decoder, again) <= WORST


def answers(engine: Engine, prompts: list[list[int]]) -> list[Answer]:
    """All at once, greedy."""
    sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, logprobs=0)
    found = {f"{place}-{id(prompts)}": Answer(prompt, [], []) for place, prompt in enumerate(prompts)}
    for name, answer in found.items():
        engine.add(GenerateRequest(request_id=name, prompt_token_ids=answer.prompt, sampling=sampling))
    while engine.has_work:
        for output in engine.step():
            assert output.error is None
            found[output.request_id].ids += output.token_ids
            found[output.request_id].logprobs += [one.logprob for one in output.logprobs or []]
    return list(found.values())


@torch.inference_mode()
def measure(decoder: Decoder, answers: list[Answer]) -> float:
    """The root-mean-square error of chosen tokens' log-probabilities over the plain pass's; checks the choices."""
    ours: list[float] = []
    plain: list[float] = []
    sure = 0
    for answer in answers:
        ids = answer.prompt + answer.ids[:-1]
        exact = log_probs(decoder, ids, TOKENS, torch.float64, VOCABULARY)
        rough = log_probs(decoder, ids, TOKENS, decoder.dtype, VOCABULARY)
        chosen = torch.tensor(answer.ids, device=exact.device)[:, None]
        truth = exact.gather(1, chosen)[:, 0]
        ours += (torch.tensor(answer.logprobs, device=exact.device) - truth).tolist()
        plain += (rough.gather(1, chosen)[:, 0] - truth).tolist()
        # Where the best is ahead of the second by more than both may be wrong, it is chosen.
        best = exact.topk(2)
        noise = 2 * (rough - exact).abs().amax(1)
        clear = best.values[:, 0] - best.values[:, 1] > 2 * noise
        sure += int(clear.sum())
        assert torch.equal(chosen[:, 0][clear], best.indices[:, 0][clear])
    assert sure
    print(f"error {rms(ours):.2e}, a plain pass's {rms(plain):.2e}")
    return rms(ours) / rms(plain)


def rms(values: list[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).pow(2).mean().sqrt())
