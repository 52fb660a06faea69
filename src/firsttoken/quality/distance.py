"""Distances between next-token distributions, position by position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from firsttoken.quality.records import Distance, Perplexity, Way


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring positions of one text."""

    way: Way
    kind: str
    kl: Tensor | None  # [positions] nats, KL(reference || this); None of the reference itself
    same_best: Tensor | None  # [positions] bool
    likelihood: Tensor  # [positions] log-probability of the text's next token


def compare(logprobs: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """KL(truth || logprobs) in nats and whether both have the same likeliest id: [rows] each, of [rows, ids]."""
    terms = truth.exp().mul_(truth - logprobs)
    terms.masked_fill_(truth == float("-inf"), 0.0)  # what is impossible adds nothing
    divergence = terms.sum(dim=-1, dtype=torch.float64).clamp_(min=0.0)  # below zero it is rounding
    return divergence, logprobs.argmax(dim=-1) == truth.argmax(dim=-1)


def distances(pieces: Sequence[Piece], kinds: Iterable[str]) -> list[Distance]:
    """For each way and kind, and for all kinds together."""
    found: list[Distance] = []
    for way in dict.fromkeys(piece.way for piece in pieces):
        for kind in (*kinds, "all"):
            mine = [p for p in pieces if p.way == way and kind in (p.kind, "all")]
            kl = torch.cat([p.kl for p in mine if p.kl is not None])
            same = torch.cat([p.same_best for p in mine if p.same_best is not None])
            found.append(
                Distance(
                    way=way,
                    kind=kind,
                    positions=len(kl),
                    kl=float(kl.mean()),
                    kl_p99=float(torch.quantile(kl, 0.99, interpolation="higher")),
                    same_best=float(same.double().mean()),
                )
            )
    return found


def perplexities(pieces: Sequence[Piece], kinds: Iterable[str]) -> list[Perplexity]:
    """For each kind, and for all together, of texts that came in chunks."""
    found: list[Perplexity] = []
    for kind in (*kinds, "all"):
        chosen = torch.cat([p.likelihood for p in pieces if p.way == "prefill" and kind in (p.kind, "all")])
        found.append(Perplexity(kind=kind, positions=len(chosen), value=float((-chosen.double().mean()).exp())))
    return found
