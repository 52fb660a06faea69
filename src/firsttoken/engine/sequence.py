"""One sequence: the single owner of a request's tokens, status and timings."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from firsttoken.types import FinishReason, GenerateRequest

if TYPE_CHECKING:
    from firsttoken.engine.grammar.matcher import Matcher


class Status(Enum):
    WAITING = auto()  # holds no blocks and no slot
    RUNNING = auto()  # holds blocks and a slot
    FINISHED = auto()


@dataclass(slots=True, eq=False)
class Sequence:
    """A prompt and what was generated for it.

    With one step always in flight, three counts differ: tokens known on the host (`token_ids`), tokens sampled on the
    device but not yet collected (`num_in_flight`), and tokens whose KV is computed or queued (`num_computed`).
    """

    request: GenerateRequest
    index: int  # which of the request's n
    seed: int  # resolved: the request's seed + index, or drawn at admission
    token_ids: list[int]  # prompt and committed output
    num_prompt_tokens: int
    max_total_tokens: int  # prompt + max_tokens, cut to the context
    order: int = 0  # of admission: breaks ties of priority and arrival
    stop_ids: frozenset[int] = frozenset()  # end ids (unless ignored) and stop_token_ids
    matcher: Matcher | None = None  # where its grammar stands after the committed output
    status: Status = Status.WAITING
    num_computed: int = 0  # tokens whose KV is in the cache or will be when the queued steps end
    num_in_flight: int = 0  # sampled by a queued step, not yet committed
    num_cached: int = 0  # prompt tokens that came from the prefix cache at the first admission
    epoch: int = 0  # grows at each preemption; plan rows of an older epoch belong to freed blocks
    slot: int = -1  # row of per-sequence device state while RUNNING
    last_step: int = -1  # the newest step with a row of this sequence
    block_ids: list[int] = field(default_factory=list)
    block_hashes: list[bytes] = field(default_factory=list)  # of its leading full blocks; the pool fills it
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    first_scheduled: float | None = None  # time.monotonic()
    first_token: float | None = None
    last_token: float | None = None

    @property
    def prompt_logprobs(self) -> int | None:
        """How many of each prompt token are wanted; the first of a request's sequences scores for all of them."""
        return self.request.sampling.prompt_logprobs if self.index == 0 else None

    @property
    def num_known(self) -> int:
        """Tokens that exist, whether or not the host has seen them yet."""
        return len(self.token_ids) + self.num_in_flight

    @property
    def rank(self) -> tuple[int, float, int]:
        """Smaller runs first and is preempted last."""
        return (self.request.priority, self.request.arrival, self.order)

    @property
    def num_output_tokens(self) -> int:
        """Committed output tokens."""
        return len(self.token_ids) - self.num_prompt_tokens
