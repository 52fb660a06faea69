"""Each figure beside what the machine allows (the roofline: Williams et al. 2009), and what is beyond belief.

A decode step reads every weight once for all running streams, and each stream's keys and values; a prompt's products
are computed once for each of its tokens. Memory and arithmetic can overlap, so the slower of the two is the bound. No
figure can pass it, so one that does was measured or counted wrongly.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from firsttoken.bench import units
from firsttoken.bench.model_costs import ModelCosts
from firsttoken.bench.records import CeilingShare, Check, RequestRecord, ScenarioResult
from firsttoken.machine.gpu_ceilings import Ceilings

TOLERANCE = 0.05
"""A measured ceiling is a few percent off (the best kernel reads 2 % faster than a plain sum); beyond is impossible."""

Bound = Literal["memory", "compute", "both"]


@dataclass(frozen=True, slots=True)
class Roofline:
    """The bounds of one model on one machine. `tokens_per_step` is above 1 where the server speculates."""

    costs: ModelCosts
    ceilings: Ceilings
    tokens_per_step: float = 1.0

    def time(self, num_bytes: float, flops: float | None) -> tuple[float, Bound]:
        """Seconds that no such device can undercut; by memory alone where the FLOPs or their rate are unknown."""
        assert self.ceilings.read is not None
        memory = num_bytes / self.ceilings.read
        if flops is None or self.ceilings.product is None:
            return memory, "memory"
        compute = flops / self.ceilings.product
        return max(memory, compute), "memory" if memory >= compute else "compute"

    def prefill(self, prompt: int, cached: int) -> tuple[float, Bound]:
        """Seconds from a prompt to its first token."""
        new = max(prompt - cached, 1)
        return self.time(self.costs.prefill_bytes(cached), self.costs.prefill_flops(new, max(prompt, 1)))

    def step(self, streams: float, context: float, cache_bytes: float = 0.0) -> tuple[float, Bound]:
        """Seconds of one decode step of `streams` that each hold `context` tokens.

        `cache_bytes` is what the step may find in the processor's cache, left there by the step before.
        """
        read = self.costs.weight_bytes + streams * context * self.costs.kv_bytes_per_token
        flops = self.costs.decode_flops(context)
        return self.time(max(read - cache_bytes, 0.0), None if flops is None else streams * flops)

    @property
    def knows_prefill(self) -> bool:
        return self.ceilings.product is not None and self.costs.config is not None


@dataclass(frozen=True, slots=True)
class _Request:
    """What a bound needs of a finished request."""

    prompt: int
    cached: int
    cached_known: bool
    output: int
    later: int  # output tokens after the first chunk: what its decoding, as it was seen, is made of
    sent: float
    first: float
    last: float

    @property
    def context(self) -> float:
        """Tokens in its cache, on average over its decoding."""
        return self.prompt + self.output / 2

    @property
    def ttft(self) -> float:
        return self.first - self.sent

    @property
    def tpot(self) -> float:
        return (self.last - self.first) / max(self.output - 1, 1)


def judge_scenario(scenario: ScenarioResult, roofline: Roofline) -> tuple[list[CeilingShare], list[Check]]:
    """Shares of the ceilings, and the verdict on whether they can be true."""
    requests = _requests(scenario.records)
    if not requests:
        return [], [Check(name="roofline", level="ok", text="No ceilings: no request ended with counted tokens.")]
    found = [_ttft(requests, roofline), _tpot(requests, roofline), _throughput(scenario, requests, roofline)]
    shares = [one[0] for one in found if one is not None]
    checks = [one[1] for one in found if one is not None and one[1] is not None]
    if not checks:
        text = ", ".join(f"{_NAMES[share.figure]} {units.percent(share.share)}" for share in shares)
        checks = [Check(name="roofline", level="ok", text=f"Of the ceiling of {roofline.ceilings.device}: {text}.")]
    return shares, checks


_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "output_tokens_per_s": "output tok/s"}
_Found = tuple[CeilingShare, Check | None]


def _ttft(requests: Sequence[_Request], roofline: Roofline) -> _Found | None:
    if not roofline.knows_prefill:
        return None
    floors = [roofline.prefill(request.prompt, request.cached) for request in requests]
    ratios = [floor / request.ttft for (floor, _), request in zip(floors, requests, strict=True) if request.ttft > 0]
    if not ratios:
        return None
    measured, share = statistics.median(request.ttft for request in requests), statistics.median(ratios)
    middle = sorted(requests, key=lambda request: request.prompt)[len(requests) // 2]
    cached = f", {middle.cached} of them cached" if middle.cached else ""
    result = CeilingShare(
        figure="ttft",
        measured=measured,
        ceiling=measured * share,
        share=share,
        bound=_common(bound for _, bound in floors),
        text=f"a prompt of {middle.prompt} tokens{cached}, computed at {_rates(roofline)}",
    )
    if share <= 1 + TOLERANCE:
        return result, None
    if all(request.cached_known for request in requests):
        return result, _impossible(result, "that the prompts' cached tokens and the model's config are right")
    text = f"{_above(result)}; the server does not tell cached tokens, so its cache may explain that."
    return result, Check(name="roofline", level="flag", text=text)


def _tpot(requests: Sequence[_Request], roofline: Roofline) -> _Found | None:
    decoding = [request for request in requests if request.later > 0 and request.last > request.first]
    if not decoding:
        return None
    starts, ends = np.array([r.first for r in decoding]), np.array([r.last for r in decoding])
    contexts = np.array([r.context for r in decoding])
    ratios, alone, bounds, streams = [], [], [], []
    for request in decoding:
        overlap = np.clip(np.minimum(ends, request.last) - np.maximum(starts, request.first), 0.0, None)
        weight = overlap / (request.last - request.first)  # of each stream, its own included: how long it ran beside
        running = float(weight.sum())
        floor, bound = roofline.step(running, float(weight @ contexts) / running)
        each = (request.last - request.first) / request.later * roofline.tokens_per_step
        ratios.append(floor / each)
        # The hard limit is that of a stream of its own: a server may let the others wait.
        least, _ = roofline.step(1.0, request.context, roofline.ceilings.cache_bytes)
        alone.append(least / each)
        bounds.append(bound)
        streams.append(running)
    measured, share = statistics.median(r.tpot for r in decoding), statistics.median(ratios)
    running, context = statistics.median(streams), float(np.median(contexts))
    result = CeilingShare(
        figure="tpot",
        measured=measured,
        ceiling=measured * share,
        share=share,
        bound=_common(bounds),
        text=_step_text(roofline, running, context),
    )
    if statistics.median(alone) <= 1 + TOLERANCE:
        return result, None
    return result, _impossible(result, _DOUBTS)


def _throughput(scenario: ScenarioResult, requests: Sequence[_Request], roofline: Roofline) -> _Found | None:
    ends = [record.ended for record in scenario.records if record.phase == "measured"]
    starts = [record.sent for record in scenario.records if record.phase == "measured"]
    tokens, duration = sum(request.output for request in requests), max(ends) - min(starts)
    if duration <= 0 or not tokens:
        return None
    streams = _most_at_once(starts, ends)
    floor, bound = _least_duration(requests, streams, roofline, 0.0)
    # The hard limit: where the server does not tell what it had cached, it may have had every prompt.
    doubtless = [request if request.cached_known else replace(request, cached=request.prompt) for request in requests]
    limit, _ = _least_duration(doubtless, streams, roofline, roofline.ceilings.cache_bytes)
    arrivals = "; an open loop is held to its arrivals as well" if scenario.load.open else ""
    result = CeilingShare(
        figure="output_tokens_per_s",
        measured=tokens / duration,
        ceiling=tokens / floor,
        share=floor / duration,
        bound=bound,
        text=f"{tokens} tokens with {streams} requests at once at most{arrivals}",
    )
    if limit <= duration * (1 + TOLERANCE):
        return result, None
    return result, _impossible(result, _DOUBTS)


def _least_duration(
    requests: Sequence[_Request], streams: int, roofline: Roofline, cache_bytes: float
) -> tuple[float, Bound]:
    """Seconds that all requests take at least when up to `streams` run at once.

    Three bounds hold at the same time: every step's weights and every stream's own keys and values are read, all
    products are computed, and a request's tokens come one after another.
    """
    costs, chain, flops, kv, decoded = roofline.costs, 0.0, 0.0, 0.0, 0
    for request in requests:
        later = (request.output - 1) / roofline.tokens_per_step
        # A prefix that several streams share may be read once for all of them, so it does not count.
        own = request.context - request.cached
        kv += later * own * costs.kv_bytes_per_token
        decoded += request.output - 1
        step, _ = roofline.step(1.0, own, cache_bytes)
        chain += later * step
        if roofline.knows_prefill:
            chain += roofline.prefill(request.prompt, request.cached)[0]
            flops += costs.prefill_flops(max(request.prompt - request.cached, 1), max(request.prompt, 1)) or 0.0
        flops += (request.output - 1) * (costs.decode_flops(request.context) or 0.0)
    steps = decoded / roofline.tokens_per_step / streams
    shared, bound = roofline.time(
        steps * max(costs.weight_bytes - cache_bytes, 0.0) + kv, flops if costs.config is not None else None
    )
    if chain / streams > shared:
        return chain / streams, "both" if roofline.knows_prefill else "memory"
    return max(shared, 1e-12), bound


def _requests(records: Sequence[RequestRecord]) -> list[_Request]:
    """Measured requests that ended well and whose tokens are known."""
    found = []
    for record in records:
        prompt = record.prompt_tokens if record.prompt_tokens is not None else record.prompt_tokens_intended
        output = record.completion_tokens or sum(chunk.tokens for chunk in record.chunks)
        counted = record.completion_tokens is not None or record.token_source in ("server", "tokenizer", "asked")
        if record.phase != "measured" or record.error or not record.chunks or prompt is None or not counted:
            continue
        cached = min(record.cached_tokens or 0, max(prompt - 1, 0))
        known = record.cached_tokens is not None
        first, last = record.chunks[0].at, record.chunks[-1].at
        later = max(output - record.chunks[0].tokens, 0)
        found.append(_Request(prompt, cached, known, max(output, 1), later, record.sent, first, last))
    return found


def _most_at_once(starts: Sequence[float], ends: Sequence[float]) -> int:
    events = sorted([(at, 1) for at in starts] + [(at, -1) for at in ends])
    most = running = 0
    for _, change in events:
        running += change
        most = max(most, running)
    return max(most, 1)


_DOUBTS = "that tokens are counted right, that the weights are these, and that the server decodes one token a step"


def _impossible(share: CeilingShare, doubts: str) -> Check:
    text = f"Impossible: {_above(share)}; check {doubts}."
    return Check(name="roofline", level="fail", text=text)


def _above(share: CeilingShare) -> str:
    show = units.rate if share.figure == "output_tokens_per_s" else units.seconds
    return (
        f"{_NAMES[share.figure]} of {show(share.measured)} is beyond the ceiling of {show(share.ceiling)} by more than "
        f"{TOLERANCE:.0%} ({share.text})"
    )


def _step_text(roofline: Roofline, streams: float, context: float) -> str:
    kv = streams * context * roofline.costs.kv_bytes_per_token
    beside = f" and {kv / 1e9:.3g} GB of keys and values" if kv else ""
    weights = f"{roofline.costs.weight_bytes / 1e9:.3g} GB of weights{beside}"
    return f"a step of {streams:.3g} streams at {context:.0f} tokens: {weights} at {_rates(roofline)}"


def _rates(roofline: Roofline) -> str:
    ceilings = roofline.ceilings
    rate = ceilings.read or 0.0
    read = f"{rate / 1e12:.3g} TB/s" if rate >= 1e12 else f"{rate / 1e9:.3g} GB/s"
    return read if ceilings.product is None else f"{read} and {ceilings.product / 1e12:.3g} TFLOP/s"


def _common(bounds: Iterable[Bound]) -> Bound:
    seen = set(bounds)
    return seen.pop() if len(seen) == 1 else "both"
