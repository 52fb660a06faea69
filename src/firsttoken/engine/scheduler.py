"""Decides what each step runs. It touches no tensor: it reads and moves counts, blocks and slots."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from firsttoken.engine.block_pool import BlockPool
from firsttoken.engine.sequence import Sequence, Status
from firsttoken.engine.stats import EngineCounters
from firsttoken.engine.step_cost import StepCost, StepLoad
from firsttoken.engine.step_plan import PlanRow, StepPlan
from firsttoken.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """How much one step may hold."""

    max_num_batched_tokens: int  # at least max_num_seqs, so that every decoding sequence has its row
    max_num_seqs: int  # slots
    max_step_ms: float | None = None  # of a step that decodes and prefills; needs `step_cost`
    step_cost: StepCost | None = None
    min_chunk: int = 16  # prefill tokens that a step runs even where the time is spent, so that no prompt starves
    # A prompt that a step has no time for is cut so that the step has a multiple of this many tokens where it has more:
    # a GPU's products take such steps at their best, and others no faster.
    token_grain: int = 1


class Scheduler:
    """Lets every sequence's computed tokens catch up with its known ones; prefill and decode are the same thing.

    Sequences are served by rank: priority, then arrival. A sequence takes the blocks of all its known tokens when it is
    admitted, so later only decoding needs more; when there are none the running sequence of the worst rank is
    preempted: it gives up blocks and slot, and is computed again later. The best one is never preempted, so
    something always ends. A waiting sequence that cannot be admitted lets none of worse rank pass it.

    A prompt too long for one step leaves half of it to prompts behind it that end in it, so that short ones do not wait
    for all of a long one; what they leave it takes.

    With prefix caching the other sequences of one request are held back until the first has computed the prompt.
    """

    def __init__(self, pool: BlockPool, limits: SchedulerLimits, counters: EngineCounters) -> None:
        if limits.max_num_batched_tokens < limits.max_num_seqs:
            raise ConfigError(
                f"--max-num-batched-tokens {limits.max_num_batched_tokens} must be at least "
                f"--max-num-seqs {limits.max_num_seqs}, since every running sequence decodes one token a step."
            )
        self.pool = pool
        self.running: list[Sequence] = []  # by rank
        self.waiting: list[Sequence] = []  # by rank
        self._held: dict[str, list[Sequence]] = {}  # by request id
        self._limits = limits
        self._counters = counters
        self._slots = list(range(limits.max_num_seqs - 1, -1, -1))  # free ones, taken from the end
        self._next_step = 0
        # Of the step being planned:
        self._chosen: dict[Sequence, int] = {}  # its tokens
        self._load = StepLoad()
        self._long: Sequence | None = None  # the first prompt that does not end in it
        self._promised = 0  # returning blocks that some sequences wait for
        self._preempted = False  # whether planning took blocks from a sequence

    @property
    def num_waiting(self) -> int:
        """Sequences without a slot, the held ones too."""
        return len(self.waiting) + sum(map(len, self._held.values()))

    @property
    def num_queued(self) -> int:
        """Sequences that never had a slot."""
        return sum(seq.first_scheduled is None for seq in self.waiting) + sum(map(len, self._held.values()))

    @property
    def num_free_slots(self) -> int:
        return len(self._slots)

    def add(self, sequences: list[Sequence]) -> None:
        """Queues the sequences of one request, in the order of their indices."""
        first, *others = sequences
        if not self.pool.enable_prefix_caching:
            for seq in others:
                insort(self.waiting, seq, key=_rank)
        elif others:
            self._held[first.request.request_id] = others
        insort(self.waiting, first, key=_rank)

    def schedule(self, now: float) -> StepPlan | None:
        """The next step, or None when there is nothing to run before a queued step is collected.

        Counts the planned tokens as computed, and those to be sampled as in flight.
        """
        self._chosen = {}
        self._long = None
        self._promised = 0
        self._preempted = False
        behind = self._choose_decodes()
        self._load = StepLoad(len(self._chosen), sum(seq.num_known for seq in self._chosen))
        self._choose_chunks(behind)
        fresh = set() if self._preempted else self._admit(now)
        self._top_up()
        return self._plan(fresh)

    def commit(self, row: PlanRow) -> None:
        """Counts a collected row of an unfinished sequence whose earlier rows are committed."""
        seq = row.seq
        seq.num_in_flight -= row.samples
        if row.epoch != seq.epoch:
            return  # its blocks are gone; the token it sampled is kept all the same
        self.pool.commit(seq, row.start, row.end)
        if row.end >= seq.num_prompt_tokens:
            self._let_siblings_go(seq)

    def finish(self, seq: Sequence) -> None:
        """Takes a sequence out, wherever it is. Rows of it that are still queued must not be committed."""
        if seq.status is Status.RUNNING:
            self._leave(seq)
        elif seq in (held := self._held.get(seq.request.request_id, [])):
            held.remove(seq)
        else:
            self.waiting.remove(seq)
        seq.status = Status.FINISHED
        self._let_siblings_go(seq)

    def _choose_decodes(self) -> list[Sequence]:
        """Chooses all sequences that need one token; returns those that are further behind."""
        behind: list[Sequence] = []
        for seq in list(self.running):
            if seq.status is not Status.RUNNING:
                continue  # preempted for one before it
            missing = _missing(seq)
            if missing == 1 and _samples(seq):
                if self._make_room(seq):
                    self._chosen[seq] = 1
            elif missing:
                behind.append(seq)
        return behind

    def _make_room(self, seq: Sequence) -> bool:
        """Gives a decoding sequence the block it may need. False: it misses this step, or was itself preempted."""
        if len(seq.block_ids) * self.pool.block_size >= seq.num_known:
            return True
        while not self.pool.num_free:
            if self.pool.num_returning > self._promised:
                self._promised += 1
                return False
            victim = self.running[-1]
            self._preempt(victim)
            if victim is seq:
                return False
        self.pool.grow(seq)
        return True

    def _choose_chunks(self, behind: list[Sequence]) -> None:
        behind = [seq for seq in behind if seq.status is Status.RUNNING]
        for seq in behind:
            others = bool(self.waiting) or seq is not behind[-1]
            if not self._choose_chunk(seq, seq.num_computed, _missing(seq), others):
                return

    def _choose_chunk(self, seq: Sequence, start: int, missing: int, others: bool) -> int:
        """Chooses what of the `missing` tokens after `start` the step has room for; returns how many."""
        num_tokens = self._chunk(start, missing)
        if 0 < num_tokens < missing:
            if self._long is not None:
                return 0
            self._long = seq
            if others:
                num_tokens = max(num_tokens // 2, min(num_tokens, self._limits.min_chunk))
        if num_tokens:
            self._chosen[seq] = num_tokens
            self._load = self._load.with_chunk(start, num_tokens)
        return num_tokens

    def _top_up(self) -> None:
        """Gives the long prompt what the others left of the step."""
        seq = self._long
        if seq is None or seq not in self._chosen:
            return
        done = self._chosen[seq]
        self._chosen[seq] += self._chunk(seq.num_computed + done, _missing(seq) - done)

    def _admit(self, now: float) -> set[Sequence]:
        """Admits waiting sequences while blocks, slots, tokens and time last; returns them."""
        admitted: set[Sequence] = set()
        while self.waiting:
            seq = self.waiting[0]
            assert not seq.num_in_flight, "a preempted sequence waits for its token before it runs again"
            known = len(seq.token_ids)
            reads_cache = seq.prompt_logprobs is None  # else every position's logits are wanted
            matched = self.pool.match_prefix(seq) if self._slots and reads_cache else []
            # Running sequences grow: without a block to spare for each, one would soon be preempted.
            headroom = len(self.running)
            if not self._slots or not self.pool.fits(known, matched, headroom):
                self._make_way(seq, known, matched, headroom)
                break
            cached = len(matched) * self.pool.block_size
            if not self._choose_chunk(seq, cached, known - cached, others=len(self.waiting) > 1):
                break
            del self.waiting[0]
            self.pool.admit(seq, known, matched)
            seq.slot = self._slots.pop()
            seq.status = Status.RUNNING
            seq.num_computed = cached
            insort(self.running, seq, key=_rank)
            if seq.first_scheduled is None:
                seq.first_scheduled = now
                seq.num_cached = cached
                if self.pool.enable_prefix_caching and reads_cache:
                    self._counters.prefix_cache_queries += seq.num_prompt_tokens
                    self._counters.prefix_cache_hits += cached
            admitted.add(seq)
        return admitted

    def _make_way(self, seq: Sequence, known: int, matched: list[int], headroom: int) -> None:
        """Preempts one running sequence for a waiting one of better priority, unless enough is about to return."""
        if not self.running or self.running[-1].request.priority <= seq.request.priority:
            return
        if not self._slots or not self.pool.fits(known, matched, headroom, returning=True):
            self._preempt(self.running[-1])

    def _chunk(self, start: int, missing: int) -> int:
        """How many of the `missing` tokens after `start` the step has room for; 0 when it is full.

        A chunk ends the prompt or has `min_chunk` tokens; only a step's first one may be smaller.
        """
        limits, load = self._limits, self._load
        most = min(missing, limits.max_num_batched_tokens - load.num_tokens)
        fits = most
        if load.decode_rows and limits.max_step_ms is not None and limits.step_cost is not None:
            fits = limits.step_cost.largest_chunk(load, start, limits.max_step_ms, most)
            if fits < most and load.num_tokens + fits > limits.token_grain:
                over = (load.num_tokens + fits) % limits.token_grain
                if over < fits or load.prefill_tokens:
                    fits = max(0, fits - over)
        least = min(missing, limits.min_chunk)
        if fits >= least:
            return fits
        return 0 if load.prefill_tokens else min(most, least)

    def _plan(self, fresh: set[Sequence]) -> StepPlan | None:
        if not self._chosen:
            return None
        decodes: list[PlanRow] = []
        chunks: list[PlanRow] = []
        for seq, num_tokens in self._chosen.items():
            samples = num_tokens == _missing(seq) and _samples(seq)
            row = PlanRow(seq, seq.epoch, seq.num_computed, num_tokens, samples, seq in fresh)
            (decodes if samples and num_tokens == 1 else chunks).append(row)
            seq.num_computed += num_tokens
            seq.num_in_flight += samples
            seq.last_step = self._next_step
        self._next_step += 1
        rows = (*decodes, *chunks)
        guided = tuple(i for i, row in enumerate(rows) if row.samples and row.seq.matcher is not None)
        return StepPlan(self._next_step - 1, rows, guided)

    def _preempt(self, seq: Sequence) -> None:
        self._chosen.pop(seq, None)
        self._leave(seq)
        seq.status = Status.WAITING
        seq.num_computed = 0
        seq.epoch += 1
        insort(self.waiting, seq, key=_rank)
        self._preempted = True
        self._counters.preemptions += 1

    def _leave(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self.pool.release(seq)
        self._slots.append(seq.slot)
        seq.slot = -1

    def _let_siblings_go(self, seq: Sequence) -> None:
        if seq.index == 0 and self._held:
            for sibling in self._held.pop(seq.request.request_id, ()):
                insort(self.waiting, sibling, key=_rank)


def _rank(seq: Sequence) -> tuple[int, float, int]:
    return seq.rank


def _missing(seq: Sequence) -> int:
    """Tokens to compute. The last token that a sequence may have is never computed: nothing follows it."""
    return min(seq.num_known, max(seq.max_total_tokens - 1, seq.num_prompt_tokens)) - seq.num_computed


def _samples(seq: Sequence) -> bool:
    """Whether a token may follow those known."""
    return seq.num_known < seq.max_total_tokens
