from __future__ import annotations

import pytest
import torch
from torch import Tensor

from firsttoken.engine.sampler import Sampler
from firsttoken.engine.sequence import Sequence
from firsttoken.engine.step_plan import PlanRow
from firsttoken.types import GenerateRequest, SamplingParams

VOCABULARY = 50
EOS = 3


def sampler() -> Sampler:
    return Sampler(max_num_seqs=4, vocabulary=VOCABULARY, eos_token_ids=(EOS,), device=torch.device("cpu"))


def sequence(params: SamplingParams, tokens: list[int], *, prompt: int, slot: int = 0, seed: int = 1) -> Sequence:
    request = GenerateRequest(request_id="r", prompt_token_ids=tokens[:prompt], sampling=params)
    seq = Sequence(request, 0, seed, tokens, prompt, 100)
    seq.slot = slot
    return seq


def sample(on: Sampler, logits: Tensor, *seqs: Sequence, fresh: bool = True) -> list[int]:
    rows = [PlanRow(seq, seq.epoch, 0, len(seq.token_ids), True, fresh) for seq in seqs]
    ids: list[int] = on.sample(logits.clone(), on.prepare(rows, rows)).ids.tolist()
    return ids


def flat(rows: int = 1, width: int = VOCABULARY) -> Tensor:
    return torch.arange(width, 0, -1, dtype=torch.float32).expand(rows, width) * 0.1


def test_rows_of_every_kind_share_a_batch() -> None:
    logits = flat(4)
    params = [
        SamplingParams(temperature=0.0),
        SamplingParams(top_k=5),
        SamplingParams(top_p=0.5),
        SamplingParams(temperature=2.0),
    ]
    seqs = [sequence(p, [7, 8], prompt=2, slot=i, seed=i) for i, p in enumerate(params)]
    together = sample(sampler(), logits, *seqs)
    assert together[0] == 0
    assert together[1] < 5
    assert together == [sample(sampler(), logits[:1], seq)[0] for seq in seqs]


def test_padding_ids_lose_even_with_the_largest_logit() -> None:
    logits = torch.zeros(1, VOCABULARY + 14)
    logits[0, VOCABULARY:] = 100.0
    for params in (SamplingParams(temperature=0.0), SamplingParams(), SamplingParams(top_k=60)):
        assert sample(sampler(), logits, sequence(params, [1], prompt=1))[0] < VOCABULARY


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.0, presence_penalty=100.0),
        SamplingParams(temperature=0.0, frequency_penalty=100.0),
        SamplingParams(temperature=0.0, repetition_penalty=1000.0),
    ],
)
def test_counts_kept_on_the_device_equal_counts_rebuilt_from_the_tokens(params: SamplingParams) -> None:
    kept, logits = sampler(), flat()
    tokens = [40, 41]
    for step in range(8):
        (token,) = sample(kept, logits, sequence(params, list(tokens), prompt=2), fresh=step == 0)
        (rebuilt,) = sample(sampler(), logits, sequence(params, list(tokens), prompt=2))
        assert token == rebuilt == step  # each token once, best first
        tokens.append(token)


def test_a_slot_forgets_its_last_holder() -> None:
    on, logits = sampler(), flat()
    penalized = SamplingParams(temperature=0.0, presence_penalty=100.0, logit_bias={0: -100.0}, min_tokens=5)
    assert sample(on, logits, sequence(penalized, [9, 1, 2], prompt=1)) == [4]  # 0 biased, 1 and 2 seen, 3 banned
    assert sample(on, logits, sequence(SamplingParams(temperature=0.0), [9], prompt=1)) == [0]
    again = SamplingParams(temperature=0.0, presence_penalty=100.0)
    assert sample(on, logits, sequence(again, [9], prompt=1)) == [0]


def test_presence_looks_at_the_output_and_repetition_at_the_prompt_too() -> None:
    logits = flat()
    presence = SamplingParams(temperature=0.0, presence_penalty=100.0)
    repetition = SamplingParams(temperature=0.0, repetition_penalty=1000.0)
    assert sample(sampler(), logits, sequence(presence, [0, 1], prompt=2)) == [0]
    assert sample(sampler(), logits, sequence(repetition, [0, 1], prompt=2)) == [2]


def test_a_chunk_that_samples_nothing_still_takes_over_the_slot() -> None:
    on, logits = sampler(), flat()
    params = SamplingParams(temperature=0.0, presence_penalty=100.0)
    sample(on, logits, sequence(params, [9, 0, 1], prompt=1))
    taker = sequence(params, [9, 9, 9, 0], prompt=3)
    on.reset(on.prepare([PlanRow(taker, 0, 0, 2, False, True)], []))
    assert sample(on, logits, taker, fresh=False) == [1]  # 0 is in its own output, 1 was in the other's


def test_minimum_length_counts_the_output_alone_and_ends_exactly() -> None:
    params = SamplingParams(temperature=0.0, min_tokens=2, logit_bias={EOS: 100.0}, stop_token_ids=(0,))
    tokens = [9, 9, 9]
    got: list[int] = []
    for _ in range(3):
        (token,) = sample(sampler(), flat(), sequence(params, tokens + got, prompt=3))
        got.append(token)
    assert got == [1, 1, EOS]  # 0 is a stop id
    free = SamplingParams(temperature=0.0, min_tokens=2, logit_bias={EOS: 100.0}, ignore_eos=True)
    assert sample(sampler(), flat(), sequence(free, tokens, prompt=3)) == [EOS]


def test_seeds_of_64_bits_and_negative_ones_are_all_different() -> None:
    seeds = (0, -1, 2**63, 2**64 - 1, 2**62 + 1)
    hot = SamplingParams(temperature=1.0)
    draws = {
        seed: [
            sample(sampler(), torch.zeros(1, VOCABULARY), sequence(hot, [1] * length, prompt=1, seed=seed))[0]
            for length in range(1, 9)
        ]
        for seed in seeds
    }
    assert draws[-1] == draws[2**64 - 1]
    assert len({tuple(values) for values in draws.values()}) == len(seeds) - 1
