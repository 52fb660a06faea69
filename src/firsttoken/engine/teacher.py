"""Teacher forcing: known tokens go through the model as a server's would, and every position's logits come out."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from firsttoken.engine.block_pool import BlockPool
from firsttoken.engine.sequence import Sequence
from firsttoken.engine.step_plan import PlanRow, StepPlan
from firsttoken.errors import InvalidRequest
from firsttoken.types import GenerateRequest, SamplingParams

_NOTHING = SamplingParams(temperature=0.0, max_tokens=0)


class Scorer(Protocol):
    """What the model runner does for teacher forcing."""

    def score(self, plan: StepPlan) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Scored:
    """What the model says after some tokens of one text."""

    text: int  # which of those given
    start: int  # the first token's position
    logits: Tensor  # [tokens, ids] float32: row i is what comes after token start + i; overwritten by the next step


@dataclass(frozen=True, slots=True, kw_only=True)
class Forcing:
    """How texts go through the model. Each token attends to the cache, as in a server's step of this form."""

    chunk: int  # prompt tokens of a text in a step
    single_from: int | None = None  # from this position on a step has one token of a text, as when decoding
    company: int = 1  # texts that share steps

    def spans(self, length: int) -> Iterator[tuple[int, int]]:
        """(first token, tokens) of a text's steps."""
        singles = length if self.single_from is None else min(self.single_from, length)
        yield from ((at, min(self.chunk, singles - at)) for at in range(0, singles, self.chunk))
        yield from ((at, 1) for at in range(singles, length))


def force(scorer: Scorer, pool: BlockPool, texts: Many[Many[int]], how: Forcing) -> Generator[Scored]:
    """Runs each text alone, or with its company, and yields its logits in order of position.

    The engine must be idle. Its blocks are taken from the pool for as long as a text runs; nothing enters the prefix
    cache. Raises InvalidRequest where a group of texts does not fit the pool.
    """
    for first in range(0, len(texts), how.company):
        group = [_sequence(slot, texts[first + slot]) for slot in range(min(how.company, len(texts) - first))]
        try:
            for seq in group:
                if not pool.fits(len(seq.token_ids), [], 0):
                    raise InvalidRequest(
                        f"The KV cache does not hold {sum(len(each.token_ids) for each in group)} tokens at once."
                    )
                pool.admit(seq, len(seq.token_ids), [])
            yield from _steps(scorer, group, first, how)
        finally:
            for seq in group:
                pool.release(seq)


def _steps(scorer: Scorer, group: list[Sequence], first: int, how: Forcing) -> Iterator[Scored]:
    spans = [list(how.spans(len(seq.token_ids))) for seq in group]
    for turn in range(max(map(len, spans))):
        rows = [
            PlanRow(seq, 0, *mine[turn], samples=False, fresh=turn == 0)
            for seq, mine in zip(group, spans, strict=True)
            if turn < len(mine)
        ]
        rows.sort(key=lambda row: row.num_tokens > 1)  # single tokens come first, as the runner expects
        logits = scorer.score(StepPlan(-1, tuple(rows)))
        at = 0
        for row in rows:
            yield Scored(first + row.seq.slot, row.start, logits[at : at + row.num_tokens])
            at += row.num_tokens


def _sequence(slot: int, ids: Many[int]) -> Sequence:
    request = GenerateRequest(request_id="teacher", prompt_token_ids=list(ids), sampling=_NOTHING)
    return Sequence(request, 0, 0, list(ids), len(ids), len(ids), slot=slot)
