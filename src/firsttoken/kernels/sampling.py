"""Sampling on the device, in torch: the meaning of every sampling parameter, and the form that the CPU runs.

All functions take logits [rows, ids] in float32 that end at the tokeniser's last id: padded ids never get here. A row's
result is a function of that row's logits, parameters, seed and position alone. The order is the one that vLLM's users
know: penalties, bias, temperature, top-k, top-p, min-p. Candidates are ordered by logit, equal logits by id.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import embedding

GREEDY_BELOW = 1e-5  # temperatures under this mean greedy, as in vLLM
TOP_K_BUCKETS = (64, 1024)  # fixed candidate counts, so that company never changes which equal logits are candidates
IMPOSSIBLE = -9999.0  # stands for -inf in log-probabilities, which JSON cannot say; vLLM uses the same
NUCLEUS_CANDIDATES = 256  # enough for top-p at most steps of a real model; the rest sort the whole row

_LOWEST = torch.finfo(torch.float32).min
_HIGHEST = torch.finfo(torch.float32).max


def sanitize(logits: Tensor) -> Tensor:
    """In place: NaN counts as impossible and +inf as the largest number, so that a broken model still gives an id."""
    return torch.nan_to_num_(logits, nan=float("-inf"), posinf=_HIGHEST, neginf=float("-inf"))


def uniforms(seeds: Tensor, positions: Tensor) -> Tensor:
    """One float64 in [0, 1) a row from (seed, position in the sequence of the token to draw), both int64 [rows].

    A counter-based generator: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) over both words. No
    state, so preemption, padding and batch composition cannot change a draw.
    """
    bits = _mix(seeds + _mix(positions + 1))
    return ((bits >> 11) & ((1 << 53) - 1)).to(torch.float64) * 2.0**-53


def _mix(x: Tensor) -> Tensor:
    x = x + -7046029254386353131  # 0x9E3779B97F4A7C15; int64 arithmetic wraps
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * -7723592293110705685  # 0x94D049BB133111EB
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def penalize(
    logits: Tensor, counts: Tensor, in_prompt: Tensor, repetition: Tensor, presence: Tensor, frequency: Tensor
) -> Tensor:
    """Logits after the three penalties, [rows, ids].

    counts [rows, ids] int32 are output tokens; in_prompt [rows, ids] bool; the penalties [rows] float32. Repetition
    divides positive and multiplies negative logits of ids in prompt or output (CTRL, arXiv:1909.05858); the other two
    look at the output only, as in OpenAI's API.
    """
    in_output = counts > 0
    factor = repetition[:, None]
    repeated = torch.where(logits > 0, logits / factor, logits * factor)
    logits = torch.where(in_output | in_prompt, repeated, logits)
    return logits - frequency[:, None] * counts - presence[:, None] * in_output


def forbid(logits: Tensor, rows: Tensor, masks: Tensor) -> None:
    """In place: ids that a row's mask lacks become impossible, and those it has stay possible whatever else was done.

    logits [rows, ids]; rows [masked] int64, ascending; masks [masked, words] int32, bit i of word w for id 32 w + i.
    On a CPU a table of what each byte means is nine times faster than bits shifted and selected by.
    """
    limits = embedding(masks.view(torch.uint8).int(), _limits(masks.device))  # [masked, bytes, 8]
    limits = limits.view(len(masks), -1)[:, : logits.shape[1]]
    whole = len(rows) == len(logits)
    some = logits if whole else logits[rows]
    torch.minimum(some.clamp_(min=_LOWEST), limits, out=some)
    if not whole:
        logits[rows] = some


@cache
def _limits(device: torch.device) -> Tensor:
    """[256, 8]: what the eight ids of a byte may be at most, +inf where their bit is set."""
    bits = torch.arange(256)[:, None] >> torch.arange(8) & 1
    return torch.where(bits > 0, float("inf"), float("-inf")).to(device)


def greedy(logits: Tensor) -> Tensor:
    """The likeliest id of each row, the lowest of equals: [rows] int64."""
    values, ids = logits.max(dim=-1)
    if logits.is_cuda or bool(torch.isnan(values).any()):  # on CUDA looking would make the host wait
        ids = sanitize(logits.clone()).max(dim=-1).indices
    return ids


def bucket_of(top_k: int, top_p: float, vocabulary: int) -> int:
    """How many candidates a row needs: 0 is the whole vocabulary unsorted, -1 a nucleus of unknown size."""
    if 0 < top_k < vocabulary:
        for size in TOP_K_BUCKETS:
            if top_k <= size < vocabulary:
                return size
        return vocabulary
    return -1 if top_p < 1.0 else 0


def draw(
    logits: Tensor, bucket: int, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, uniform: Tensor
) -> Tensor:
    """One id a row, [rows] int64, for rows that share a bucket (see `bucket_of`).

    logits [rows, ids] are sane (`sanitize`); temperature, top_p, min_p [rows] float32; top_k [rows] int64, 0 is off;
    uniform [rows] float64. The id is found by inverting the cumulative distribution over the kept candidates.
    """
    if bucket == 0:
        return _draw_unsorted(logits, temperature, min_p, uniform)
    if bucket > 0:
        values, ids = _candidates(logits, bucket)
        return _draw_sorted(values, ids, _weights(values, values[:, :1], temperature), top_k, top_p, min_p, uniform)
    return _draw_nucleus(logits, temperature, top_k, top_p, min_p, uniform)


def _weights(values: Tensor, best: Tensor, temperature: Tensor) -> Tensor:
    """exp((value - best) / temperature): 1 for the best, and 0 for everything if a row has no possible id."""
    return ((values - best.clamp(min=_LOWEST)) / temperature[:, None]).exp_()


def _candidates(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest logits and their ids, [rows, count], best first, equal logits by id."""
    if count >= logits.shape[1]:
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
        return values, ids
    values, ids = logits.topk(count, dim=-1)
    ids, by_id = ids.sort(dim=-1)
    values, by_value = values.gather(1, by_id).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(1, by_value)


def _draw_sorted(
    values: Tensor,
    ids: Tensor,
    weights: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    uniform: Tensor,
    total: Tensor | None = None,
) -> Tensor:
    """Draws among sorted candidates; `total` [rows, 1] is the weight of all ids, where these are not all."""
    rank = torch.arange(values.shape[1], device=values.device)
    limit = torch.where(top_k > 0, top_k, values.shape[1])
    weights = weights * (rank < limit[:, None])
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    before = cumulative - weights
    mass = cumulative[:, -1:] if total is None else total
    keep = (before < top_p[:, None] * mass) & (weights >= min_p[:, None])  # the best has weight 1
    weights = weights * keep
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    chosen = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(dim=-1)
    last = ((weights > 0).sum(dim=-1) - 1).clamp(min=0)  # kept candidates are a prefix
    return ids.gather(1, torch.minimum(chosen, last)[:, None])[:, 0]


def _draw_unsorted(logits: Tensor, temperature: Tensor, min_p: Tensor, uniform: Tensor) -> Tensor:
    best, best_id = logits.max(dim=-1)
    weights = _weights(logits, best[:, None], temperature)
    weights = weights * (weights >= min_p[:, None])
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    target = uniform[:, None] * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, target, right=True)[:, 0]
    beyond = chosen >= logits.shape[1]  # rounding at the far end, or a row without a possible id
    return torch.where(beyond, best_id, chosen)


def _draw_nucleus(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, uniform: Tensor
) -> Tensor:
    """Top-p over the whole vocabulary. The few likeliest usually hold the mass; other rows are sorted whole."""
    if logits.is_cuda or logits.shape[1] <= NUCLEUS_CANDIDATES:  # on CUDA a sort costs less than making the host wait
        values, ids = _candidates(logits, logits.shape[1])
        return _draw_sorted(values, ids, _weights(values, values[:, :1], temperature), top_k, top_p, min_p, uniform)
    values, ids = _candidates(logits, NUCLEUS_CANDIDATES)
    total = _weights(logits, values[:, :1], temperature).sum(dim=-1, keepdim=True, dtype=torch.float64)
    weights = _weights(values, values[:, :1], temperature)
    enough = weights.sum(dim=-1, dtype=torch.float64) >= top_p * total[:, 0]
    result = _draw_sorted(values, ids, weights, top_k, top_p, min_p, uniform, total)
    if not bool(enough.all()):
        wide = (~enough).nonzero()[:, 0]
        values, ids = _candidates(logits[wide], logits.shape[1])
        weights = _weights(values, values[:, :1], temperature[wide])
        result[wide] = _draw_sorted(
            values, ids, weights, top_k[wide], top_p[wide], min_p[wide], uniform[wide], total[wide]
        )
    return result


def logprobs(logits: Tensor, chosen: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-probabilities of the model's own distribution: temperature and penalties play no part.

    logits [rows, ids], chosen [rows] int64 -> the chosen ids' logprobs [rows] float32 and ranks [rows] int64 (1 is the
    likeliest; equals share a rank), the `count` likeliest ids [rows, count] int64, and their logprobs.
    """
    logits = sanitize(logits.clone())
    total = logits.logsumexp(dim=-1, keepdim=True).clamp(min=_LOWEST)
    picked = logits.gather(1, chosen[:, None])
    ranks = (logits > picked).sum(dim=-1) + 1
    count = min(count, logits.shape[1])
    values, ids = _candidates(logits, count) if count else (logits[:, :0], chosen[:, None][:, :0])
    return (picked - total).clamp(min=IMPOSSIBLE)[:, 0], ranks, ids, (values - total).clamp(min=IMPOSSIBLE)
