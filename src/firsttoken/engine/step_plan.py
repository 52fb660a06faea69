"""The plan of one step (scheduler to runner) and its result (runner to scheduler)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from firsttoken.engine.sequence import Sequence
from firsttoken.types import TokenLogprob

Masks = NDArray[np.int32]  # [rows, words]: bit i of word w allows id 32 w + i


@dataclass(frozen=True, slots=True)
class PlanRow:
    """Tokens [start, start + num_tokens) of one sequence run in this step.

    A position at or beyond len(seq.token_ids) is the token sampled by the step before, still on the device: the runner
    takes it from its per-slot last-token state.
    """

    seq: Sequence
    epoch: int
    start: int
    num_tokens: int
    samples: bool  # the row's last token is the last known one: its logits give the next token
    fresh: bool  # first row of this epoch: the runner (re)builds the slot's state from seq.token_ids

    @property
    def end(self) -> int:
        """Context length after this row, in tokens."""
        return self.start + self.num_tokens


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step runs. Decode rows (one token, sampling) come first, then prefill chunks."""

    step_id: int
    rows: tuple[PlanRow, ...]
    guided: tuple[int, ...] = ()  # rows that sample by a grammar: their masks come later

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)


@dataclass(slots=True)
class StepResult:
    """One entry a plan row, in order. `token_ids[i]` is None where the row did not sample."""

    step_id: int
    token_ids: list[int | None]
    logprobs: list[TokenLogprob | None]  # None unless the request asked
    # prompt log-probabilities of the positions this row computed (for tokens start+1 .. end), where asked
    prompt_logprobs: list[list[TokenLogprob] | None]
    error: str | None = None  # the whole step failed (say, CUDA out of memory): one sentence


class Runner(Protocol):
    """Runs plans in order, without the host waiting. The engine keeps at most two launched and uncollected."""

    def launch(self, plan: StepPlan) -> None:
        """Queues a step. Reads sequences and block tables now; the caller may change them after it returns.

        Of a plan with guided rows the choice of tokens is queued by `mask`, which must follow before the next launch.
        """

    def mask(self, masks: Masks) -> None:
        """What the guided rows of the newest plan may choose, one mask each. Read now."""

    def collect(self) -> StepResult:
        """Waits for the oldest launched step and returns its result."""

    def improve(self) -> bool:
        """Makes later steps faster, for a tenth of a second at most; False when there is nothing left to do.

        Only while no step is launched.
        """
