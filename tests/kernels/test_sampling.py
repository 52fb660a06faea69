from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from firsttoken.kernels import sampling

Floats = NDArray[np.float64]


def distribution(logits: Floats, *, temperature: float, top_k: int, top_p: float, min_p: float) -> Floats:
    """The plain meaning of the parameters, one row at a time."""
    scaled = logits / temperature
    probabilities = np.exp(scaled - scaled.max())
    probabilities /= probabilities.sum()
    order = np.argsort(-probabilities, kind="stable")
    if top_k > 0:
        probabilities[order[top_k:]] = 0
        probabilities /= probabilities.sum()
    before = np.cumsum(probabilities[order]) - probabilities[order]
    probabilities[order[before >= top_p]] = 0
    probabilities[probabilities < min_p * probabilities.max()] = 0
    result: Floats = probabilities / probabilities.sum()
    return result


def chi_square_excess(observed: NDArray[np.int64], expected: Floats) -> float:
    """How many standard deviations the statistic lies above its mean; bins that expect under 5 count as one."""
    rare = expected < 5
    observed_bins = np.append(observed[~rare], observed[rare].sum())
    expected_bins = np.append(expected[~rare], expected[rare].sum())
    used = expected_bins > 0
    freedom = max(int(used.sum()) - 1, 1)
    statistic = ((observed_bins[used] - expected_bins[used]) ** 2 / expected_bins[used]).sum()
    return float((statistic - freedom) / math.sqrt(2 * freedom))


def draws(
    logits: Tensor,
    count: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 7,
) -> Tensor:
    """`count` tokens that one seed gives at positions 0, 1, ... of the same distribution."""
    rows = logits.expand(count, -1)
    uniform = sampling.uniforms(torch.full((count,), seed), torch.arange(count))
    return sampling.draw(
        rows,
        sampling.bucket_of(top_k, top_p, logits.shape[-1]),
        torch.full((count,), temperature),
        torch.full((count,), top_k),
        torch.full((count,), top_p),
        torch.full((count,), min_p),
        uniform,
    )


@pytest.mark.parametrize("vocabulary", [40, 700])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, 0, 1.0, 0.0),
        (0.3, 0, 1.0, 0.0),
        (2.0, 0, 1.0, 0.05),
        (1.0, 5, 1.0, 0.0),
        (1.5, 100, 1.0, 0.0),
        (0.7, 20, 0.8, 0.0),
        (1.0, 0, 0.6, 0.0),
        (3.0, 0, 0.97, 0.0),
        (1.0, 30, 0.9, 0.2),
        (1.0, 1, 1.0, 0.0),
        (1.0, 0, 1e-6, 0.0),
    ],
)
def test_draws_follow_the_distribution_that_the_parameters_mean(
    vocabulary: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = torch.randn(vocabulary, generator=torch.Generator().manual_seed(vocabulary)) * 2
    expected = distribution(logits.double().numpy(), temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    count = 4000
    got = draws(logits, count, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    observed = np.bincount(got.numpy(), minlength=vocabulary)
    assert set(observed.nonzero()[0]) <= set(expected.nonzero()[0])
    assert chi_square_excess(observed, expected * count) < 4


def test_a_nucleus_wider_than_the_candidates_is_still_exact() -> None:
    logits = torch.randn(3000, generator=torch.Generator().manual_seed(0)) * 0.1  # nearly flat
    expected = distribution(logits.double().numpy(), temperature=1.0, top_k=0, top_p=0.5, min_p=0.0)
    assert (expected > 0).sum() > sampling.NUCLEUS_CANDIDATES
    got = draws(logits, 600, top_p=0.5)
    assert all(expected[i] > 0 for i in got.tolist())
    assert len(set(got.tolist())) > sampling.NUCLEUS_CANDIDATES


def test_uniforms_are_uniform_independent_and_fixed_by_seed_and_position() -> None:
    count = 20_000
    same_seed = sampling.uniforms(torch.full((count,), 3), torch.arange(count))
    same_position = sampling.uniforms(torch.arange(count) - count // 2, torch.full((count,), 3))
    for values in (same_seed, same_position):
        assert float(values.min()) >= 0
        assert float(values.max()) < 1
        buckets = torch.bincount((values * 20).long(), minlength=20).double()
        assert float(((buckets - count / 20) ** 2 / (count / 20)).sum()) < 50  # chi-square, 19 degrees of freedom
        lagged = torch.corrcoef(torch.stack([values[:-1], values[1:]]))[0, 1]
        assert abs(float(lagged)) < 4 / math.sqrt(count)
    alone = sampling.uniforms(torch.tensor([3]), torch.tensor([17]))
    assert float(alone) == float(same_seed[17])


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (20, 1.0), (20, 0.8), (0, 0.8), (200, 0.99)])
def test_a_row_draws_the_same_alone_and_in_company(top_k: int, top_p: float) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(32, 2000, generator=generator) * 3
    count = len(logits)
    parameters = (
        torch.full((count,), 0.9),
        torch.full((count,), top_k),
        torch.full((count,), top_p),
        torch.zeros(count),
        sampling.uniforms(torch.arange(count) * 977, torch.arange(count)),
    )
    bucket = sampling.bucket_of(top_k, top_p, 2000)
    together = sampling.draw(logits, bucket, *parameters)
    for i in range(0, count, 5):
        alone = sampling.draw(logits[i : i + 1], bucket, *(p[i : i + 1] for p in parameters))
        assert int(alone) == int(together[i])


def test_equal_logits_at_the_top_k_border_are_taken_by_id() -> None:
    logits = torch.zeros(500)
    logits[[300, 10, 400]] = 1.0
    assert set(draws(logits, 300, top_k=2).tolist()) == {10, 300}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (20, 1.0), (0, 0.9)])
def test_broken_logits_still_give_a_valid_id(bad: float, top_k: int, top_p: float) -> None:
    one_bad = torch.zeros(400)
    one_bad[5] = bad
    for logits in (one_bad, torch.full((400,), bad)):
        got = draws(sampling.sanitize(logits.clone()), 50, top_k=top_k, top_p=top_p)
        assert bool(((got >= 0) & (got < 400)).all())
        assert 0 <= int(sampling.greedy(logits[None])) < 400


def test_nan_never_wins_a_greedy_choice() -> None:
    logits = torch.tensor([[0.0, math.nan, 2.0, 1.0], [3.0, 1.0, 0.0, 3.0]])
    assert sampling.greedy(logits).tolist() == [2, 0]


def test_penalties_are_those_of_the_papers_and_of_openai() -> None:
    logits = torch.tensor([[2.0, -2.0, 3.0, 1.0]])
    counts = torch.tensor([[3, 0, 0, 1]], dtype=torch.int32)
    in_prompt = torch.tensor([[False, True, False, False]])

    def penalized(repetition: float, presence: float, frequency: float) -> list[float]:
        values = (torch.tensor([v]) for v in (repetition, presence, frequency))
        return [float(x) for x in sampling.penalize(logits, counts, in_prompt, *values)[0]]

    assert penalized(1.0, 0.0, 0.0) == [2.0, -2.0, 3.0, 1.0]
    assert penalized(2.0, 0.0, 0.0) == [1.0, -4.0, 3.0, 0.5]
    assert penalized(1.0, 0.5, 0.0) == [1.5, -2.0, 3.0, 0.5]
    assert penalized(1.0, 0.0, 0.5) == [0.5, -2.0, 3.0, 0.5]


def test_logprobs_are_the_models_own_with_ranks_and_the_likeliest() -> None:
    logits = torch.randn(3, 900, generator=torch.Generator().manual_seed(4))
    chosen = torch.tensor([5, 6, 7])
    expected = torch.log_softmax(logits.double(), dim=-1)
    picked, ranks, ids, values = sampling.logprobs(logits, chosen, 4)
    torch.testing.assert_close(picked.double(), expected.gather(1, chosen[:, None])[:, 0], atol=1e-5, rtol=0)
    top = expected.topk(4)
    assert torch.equal(ids, top.indices)
    torch.testing.assert_close(values.double(), top.values, atol=1e-5, rtol=0)
    for row in range(3):
        assert int(ranks[row]) == 1 + int((expected[row] > expected[row, chosen[row]]).sum())


def test_logprobs_of_impossible_ids_can_be_said_in_json() -> None:
    logits = torch.tensor([[0.0, -math.inf, math.nan], [math.nan, math.nan, math.nan]])
    picked, _, ids, values = sampling.logprobs(logits, torch.tensor([1, 0]), 3)
    assert bool(torch.isfinite(picked).all())
    assert bool(torch.isfinite(values).all())
    assert ids.shape == (2, 3)
    assert float(picked[0]) == sampling.IMPOSSIBLE


@pytest.mark.parametrize("width", [1, 31, 32, 33, 100, 512])
def test_forbidden_ids_become_impossible_and_allowed_ones_stay_possible(width: int) -> None:
    generator = np.random.default_rng(width)
    allowed = generator.random((3, width)) < 0.3
    allowed[:, generator.integers(width)] = True
    words = -(-width // 32)
    bits = np.zeros((3, words * 32), dtype=np.uint8)
    bits[:, :width] = allowed
    masks = np.packbits(bits, axis=1, bitorder="little").view(np.int32)
    logits = torch.from_numpy(generator.normal(size=(5, width)).astype(np.float32))
    logits[1, :] = -math.inf  # whatever else was done
    before = logits.clone()
    rows = torch.tensor([0, 1, 4])
    sampling.forbid(logits, rows, torch.from_numpy(masks))
    torch.testing.assert_close(logits[[2, 3]], before[[2, 3]])
    assert torch.equal(logits[rows] > -math.inf, torch.from_numpy(allowed))
    kept = torch.from_numpy(allowed[[0, 2]])
    assert torch.equal(logits[[0, 4]][kept], before[[0, 4]][kept])
