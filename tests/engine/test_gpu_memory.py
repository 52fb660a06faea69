"""What happens where a card's memory does not hold a step: with torch's own allocator, held to what is in use."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from tests.qwen3_4b import CONFIG

from firsttoken.config import EngineConfig
from firsttoken.engine.engine import Engine
from firsttoken.engine.loader import load
from firsttoken.types import GenerateRequest, SamplingParams, SequenceOutput

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

LONG = 3000  # tokens: the activations of such a step take more than a hundred MiB
SLACK = 8 << 20  # bytes that a step may take beyond what is held


@contextmanager
def nothing_left() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + SLACK) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def answer(engine: Engine, name: str, prompt: list[int]) -> list[SequenceOutput]:
    sampling = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    engine.add(GenerateRequest(request_id=name, prompt_token_ids=prompt, sampling=sampling))
    found: list[SequenceOutput] = []
    while engine.has_work:
        found += engine.step()
        engine.check()
    return found


def ids(outputs: list[SequenceOutput]) -> list[int]:
    assert all(output.error is None for output in outputs)
    return [token for output in outputs for token in output.token_ids]


def test_a_step_that_the_card_does_not_hold_fails_alone_and_the_next_ones_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 2}))
    loaded = load(
        EngineConfig(
            model="shapes",
            path=str(tmp_path),
            load_format="dummy",
            max_model_len=4096,
            kv_cache_memory=1 << 30,
            max_num_seqs=4,
            enable_prefix_caching=False,
        ),
        lambda phase, fraction: None,
    )
    engine, draw = loaded.engine, random.Random()
    prompt, short = ([draw.randrange(1000) for _ in range(length)] for length in (LONG, 10))
    expected, few = ids(answer(engine, "before", prompt)), ids(answer(engine, "few before", short))
    with nothing_left():
        last = answer(engine, "too long", prompt)[-1]
        assert (last.finish_reason, last.token_ids) == ("error", [])
        assert last.error is not None
        assert "--max-num-batched-tokens" in last.error
        assert ids(answer(engine, "few", short)) == few
    assert ids(answer(engine, "after", prompt)) == expected
    loaded.runner.close()
