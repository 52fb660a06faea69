"""What a comparison finds, as it is printed and kept."""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = "firsttoken.quality/1"
Way = Literal["prefill", "decode"]
WAYS: tuple[Way, ...] = ("prefill", "decode")


class Distance(msgspec.Struct, kw_only=True, frozen=True):
    """How far one's next-token distributions are from the reference's, over positions of known text."""

    way: Way  # the text came in chunks, or one token a step
    kind: str  # of text; "all" for all of them
    positions: int
    kl: float  # nats a token, mean of KL(reference || this one) over the whole vocabulary
    kl_p99: float  # 99 % of the positions are at or below it
    same_best: float  # share of positions at which both find the same token likeliest


class Perplexity(msgspec.Struct, kw_only=True, frozen=True):
    """e to the mean negative log-likelihood of the texts' own next tokens."""

    kind: str
    positions: int
    value: float


class Agreement(msgspec.Struct, kw_only=True, frozen=True):
    """Greedy answers held against the reference's."""

    answers: int
    same: int  # equal to the last token
    shared: float  # mean share of an answer's tokens before the first one that differs


class Needle(msgspec.Struct, kw_only=True, frozen=True):
    """Numbers that were hidden in a long text and asked for at its end."""

    tokens: int  # of the prompt, the longest of them
    asked: int
    found: int


class Side(msgspec.Struct, kw_only=True, frozen=True):
    """One way of running a model, measured by itself. Times are of this run alone: claims are `bench ab`'s."""

    settings: str
    model: str
    device: str
    dtype: str
    weights: str
    attention: str
    weight_bytes: int  # read once a decode step
    kv_bytes_per_token: int
    kv_tokens: int  # that the cache holds
    peak_bytes: int  # of the GPU's memory in torch's hands, or of the process
    start_seconds: float
    tpot: float  # seconds a token, one answer at a time, the median
    output_tokens_per_s: float  # all answers at once
    ttft: float  # seconds, of the longest needle's prompt
    perplexity: list[Perplexity]
    needles: list[Needle]


class Quality(msgspec.Struct, kw_only=True, frozen=True):
    """A comparison. The floor is what A differs from itself by when texts and answers share steps with others."""

    schema: str = SCHEMA
    version: str
    created: float  # seconds since 1970
    chunk: int  # tokens a step of the prefill way
    answer_tokens: int
    a: Side
    b: Side
    floor: list[Distance]
    distance: list[Distance]  # of B from A
    floor_agreement: Agreement
    agreement: Agreement
