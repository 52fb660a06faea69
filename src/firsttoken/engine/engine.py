"""The engine: takes requests, runs one step at a time with the next already queued, and gives out their tokens."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from random import Random

from firsttoken.engine.admission import check_request, max_total_tokens
from firsttoken.engine.block_pool import BlockPool
from firsttoken.engine.grammar.compiler import Compiled, GrammarCompiler
from firsttoken.engine.grammar.masks import MaskBuilder
from firsttoken.engine.grammar.refusal import refusal
from firsttoken.engine.scheduler import Scheduler, SchedulerLimits
from firsttoken.engine.sequence import Sequence, Status
from firsttoken.engine.stats import EngineCounters
from firsttoken.engine.step_plan import PlanRow, Runner, StepPlan, StepResult
from firsttoken.engine.work_cost import WorkCost
from firsttoken.errors import InvalidRequest, QueueFull, Unavailable
from firsttoken.types import EngineInfo, FinishReason, GenerateRequest, SequenceOutput, TokenLogprob
from firsttoken.wire import EngineStats

log = logging.getLogger(__name__)

_SEEDS = 2**63  # seeds are non-negative int64


class Engine:
    """Continuous batching over a runner. Not thread-safe: one thread calls everything.

    `max_queue` bounds the sequences that wait beyond the free slots. `max_shared_tokens` is `BlockPool`'s. `seed`
    starts the stream that gives sequences without a seed theirs. Without `grammars` no request may have one.
    """

    def __init__(
        self,
        runner: Runner,
        info: EngineInfo,
        limits: SchedulerLimits,
        *,
        max_queue: int = 1024,
        enable_prefix_caching: bool = True,
        max_shared_tokens: int | None = None,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        grammars: GrammarCompiler | None = None,
        work_cost: WorkCost = WorkCost(),
    ) -> None:
        self.info = info
        self._work_cost = work_cost
        self._runner = runner
        self._max_queue = max_queue
        self._max_num_seqs = limits.max_num_seqs
        self._clock = clock
        self._grammars = grammars
        self._masks = MaskBuilder(info.token_id_limit)
        self._seeds = Random(seed)
        self._counters = EngineCounters(info.max_model_len)
        pool = BlockPool(
            info.num_blocks,
            info.block_size,
            enable_prefix_caching=enable_prefix_caching,
            max_shared_tokens=max_shared_tokens,
        )
        self._scheduler = Scheduler(pool, limits, self._counters)
        self._unfinished: dict[str, dict[int, Sequence]] = {}  # by request id and index
        self._prompt_logprobs: dict[Sequence, list[TokenLogprob | None]] = {}  # until the first output
        self._in_flight: deque[StepPlan] = deque()
        self._draining = False
        self._order = 0
        self._begun = 0.0  # when the latest step began

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do; collecting a queued step counts."""
        return bool(self._unfinished or self._in_flight)

    @property
    def pool(self) -> BlockPool:
        """The KV blocks. Others may take some while there is no work, and give them back before there is."""
        return self._scheduler.pool

    @property
    def queued(self) -> StepPlan | None:
        """The plan that the last `step` queued, if it queued one."""
        return self._in_flight[-1] if self._in_flight else None

    def prepare(self, request: GenerateRequest) -> Future[Compiled] | None:
        """What `add` would wait for: the request's grammar, unless it is known already.

        Raises InvalidRequest, or QueueFull when too many others are being compiled.
        """
        grammar = request.sampling.grammar
        if grammar is None:
            return None
        check_request(request, self.info)
        compiling = self._compiler.compile(grammar)
        return None if compiling.done() else compiling

    def add(self, request: GenerateRequest) -> None:
        """Queues a request. Its sequences get outputs from `step` until one carries a finish reason.

        With max_tokens 0 the prompt is computed (and scored, where prompt_logprobs asks) and each sequence gives one
        output without tokens that ends as "length".

        Raises InvalidRequest, QueueFull, or Unavailable after `drain`.
        """
        if self._draining:
            raise Unavailable("The server is shutting down; send the request again later.", retry_after=5)
        if request.request_id in self._unfinished:
            raise InvalidRequest(f"A request with the id {request.request_id!r} is still running; use another id.")
        check_request(request, self.info)
        grammar = request.sampling.grammar
        compiled = None if grammar is None else self._compiler.get(grammar)
        queued = self._scheduler.num_queued
        # What could never be queued whole waits until nothing else does.
        needed = min(request.n, self._max_queue + self._max_num_seqs)
        if queued + needed > self._max_queue + self._scheduler.num_free_slots:
            wait = self._counters.mean_e2e * queued / self._max_num_seqs
            raise QueueFull(
                f"The server is full: {queued} answers are waiting. Please send the request again later.",
                retry_after=float(min(60, max(1, round(wait)))),
            )
        if not request.arrival:
            request = replace(request, arrival=self._clock())
        sequences = [self._sequence(request, index, compiled) for index in range(request.n)]
        self._unfinished[request.request_id] = dict(enumerate(sequences))
        self._scheduler.add(sequences)

    def abort(self, request_id: str) -> None:
        """Ends a request's sequences without further output. Unknown and finished ids are ignored."""
        for seq in list(self._unfinished.get(request_id, {}).values()):
            self._finish(seq, "abort", self._clock())

    def stop(self, request_id: str, index: int) -> None:
        """Ends one sequence as "stop" because of what its text says, without further output; ignored if it is over."""
        seq = self._unfinished.get(request_id, {}).get(index)
        if seq is not None:
            self._finish(seq, "stop", self._clock())

    def drain(self) -> None:
        """Refuses requests from now on; those it has go on."""
        self._draining = True

    def step(self) -> list[SequenceOutput]:
        """Queues the next step, then waits for the one before it and returns its outputs.

        Empty after the first step of a burst, when nothing is behind it yet.
        """
        now = self._clock()
        if self._in_flight:
            self._counters.busy_seconds += now - self._begun
        self._begun = now
        plan = self._scheduler.schedule(now)
        if plan is not None:
            self._runner.launch(plan)
            self._in_flight.append(plan)
            if len(self._in_flight) == 1:
                return self._mask(plan)
        if not self._in_flight:
            return []
        before = self._clock()
        result = self._runner.collect()
        now = self._clock()
        self._counters.wait_seconds += now - before
        collected = self._in_flight.popleft()
        if not self._in_flight:  # the burst ends here
            self._counters.busy_seconds += now - self._begun
        assert result.step_id == collected.step_id, "the runner's results are out of order"
        self._scheduler.pool.collected(collected.step_id)
        if result.error is not None:
            outputs = self._fail(collected, result.error)
        else:
            outputs = self._commit(collected, result, now)
        return outputs if plan is None else outputs + self._mask(plan)

    def improve(self) -> bool:
        """With no work: makes later steps faster, for a tenth of a second at most. False when nothing is left to do."""
        return self._runner.improve()

    def stats(self) -> EngineStats:
        """Gauges, counters and histograms for /metrics."""
        return self._counters.read(
            running=len(self._scheduler.running),
            waiting=self._scheduler.num_waiting,
            kv_cache_usage=self._scheduler.pool.usage,
        )

    def check(self) -> None:
        """Asserts the invariants of the block pool, and that nothing is kept of sequences that are over."""
        unfinished = [seq for by_index in self._unfinished.values() for seq in by_index.values()]
        self._scheduler.pool.check(unfinished)
        assert self._prompt_logprobs.keys() <= set(unfinished), "a finished sequence's logprobs are kept"

    @property
    def _compiler(self) -> GrammarCompiler:
        if self._grammars is None:
            raise refusal("this engine has no vocabulary to follow one in")
        return self._grammars

    def _sequence(self, request: GenerateRequest, index: int, compiled: Compiled | None) -> Sequence:
        sampling = request.sampling
        seed = self._seeds.randrange(_SEEDS) if sampling.seed is None else (sampling.seed + index) % _SEEDS
        stop_ids = frozenset(sampling.stop_token_ids)
        if not sampling.ignore_eos:
            stop_ids |= frozenset(self.info.eos_token_ids)
        self._order += 1
        seq = Sequence(
            request=request,
            index=index,
            seed=seed,
            token_ids=list(request.prompt_token_ids),
            num_prompt_tokens=len(request.prompt_token_ids),
            max_total_tokens=max_total_tokens(request, self.info),
            order=self._order,
            stop_ids=stop_ids,
            matcher=None if compiled is None else compiled.matcher(stop_ids),
        )
        if seq.prompt_logprobs is not None:
            self._prompt_logprobs[seq] = [None] * seq.num_prompt_tokens
        return seq

    def _commit(self, plan: StepPlan, result: StepResult, now: float) -> list[SequenceOutput]:
        times = _Times()
        outputs: list[SequenceOutput] = []
        for i, row in enumerate(plan.rows):
            seq = row.seq
            if seq.status is Status.FINISHED:
                continue
            self._scheduler.commit(row)
            self._keep_prompt_logprobs(row, result.prompt_logprobs[i])
            token_id = result.token_ids[i]
            if row.samples:
                assert token_id is not None, "a sampling row has a token"
                outputs.append(self._take_token(seq, token_id, result.logprobs[i], now, times))
            elif row.end == seq.max_total_tokens:
                self._counters.prompt_tokens += seq.num_prompt_tokens if seq.index == 0 else 0
                output = self._output(seq, [], self._prompt_logprobs.get(seq))
                output.finish_reason = "length"
                self._finish(seq, "length", now)
                outputs.append(output)
        self._counters.step(now, plan.num_tokens, times.first, times.last)
        self._counters.work(*self._work_cost.of_step(plan))
        return outputs

    def _take_token(
        self, seq: Sequence, token_id: int, logprob: TokenLogprob | None, now: float, times: _Times
    ) -> SequenceOutput:
        seq.token_ids.append(token_id)
        self._counters.generation_tokens += 1
        if seq.last_token is None:
            seq.first_token = now
            times.first.append(seq.request.arrival)
            self._counters.prompt_tokens += seq.num_prompt_tokens if seq.index == 0 else 0
        else:
            times.last[seq.last_token] = times.last.get(seq.last_token, 0) + 1
        seq.last_token = now
        output = self._output(seq, [token_id], self._prompt_logprobs.pop(seq, None))
        if logprob is not None:
            output.logprobs = [logprob]
        if self._ends(seq, token_id):
            if token_id in seq.stop_ids or token_id in self.info.eos_token_ids:
                seq.stop_token_id = output.stop_token_id = token_id
            output.finish_reason = "stop"
            self._finish(seq, "stop", now)
        elif len(seq.token_ids) >= seq.max_total_tokens:
            output.finish_reason = "length"
            self._finish(seq, "length", now)
        return output

    def _ends(self, seq: Sequence, token_id: int) -> bool:
        """Whether the token just taken is the last one, as "stop"."""
        matcher = seq.matcher
        if matcher is None:
            # The sampler masks these ids until min_tokens; a sequence that ends too early could not be mended here.
            return token_id in seq.stop_ids and seq.num_output_tokens > seq.request.sampling.min_tokens
        matcher.advance(token_id)
        # What ends early for min_tokens or ignore_eos does so because its grammar leaves nothing else.
        return token_id in seq.stop_ids or (matcher.ended and matcher.complete)

    def _mask(self, plan: StepPlan) -> list[SequenceOutput]:
        """Lets the guided rows of the newest step choose; ends the sequences that cannot, as "length": cut short."""
        if not plan.guided:
            return []
        masks, stuck = self._masks.build(plan)
        self._runner.mask(masks)
        now = self._clock()
        outputs: list[SequenceOutput] = []
        for seq in stuck:
            assert seq.matcher is not None
            log.warning("an answer ended early, its grammar could not be followed further: %s", seq.matcher.fault)
            output = self._output(seq, [], self._prompt_logprobs.pop(seq, None))
            output.finish_reason = "length"
            self._finish(seq, "length", now)
            outputs.append(output)
        return outputs

    def _keep_prompt_logprobs(
        self, row: PlanRow, logprobs: list[TokenLogprob | None] | list[TokenLogprob] | None
    ) -> None:
        kept = self._prompt_logprobs.get(row.seq)
        if kept is None or logprobs is None:
            return
        # Those of the prompt's own tokens; what the last position gives is the answer's.
        wanted = logprobs[: max(0, row.seq.num_prompt_tokens - row.start - 1)]
        kept[row.start + 1 : row.start + 1 + len(wanted)] = wanted

    def _fail(self, plan: StepPlan, error: str) -> list[SequenceOutput]:
        """Ends every sequence of a step that failed. Their rows in the next one are dropped with them."""
        now = self._clock()
        outputs: list[SequenceOutput] = []
        for seq in [row.seq for row in plan.rows if row.seq.status is not Status.FINISHED]:
            output = self._output(seq, [], None)
            output.finish_reason = "error"
            output.error = error
            self._finish(seq, "error", now)
            outputs.append(output)
        return outputs

    def _output(
        self, seq: Sequence, token_ids: list[int], prompt_logprobs: list[TokenLogprob | None] | None
    ) -> SequenceOutput:
        return SequenceOutput(
            request_id=seq.request.request_id,
            index=seq.index,
            token_ids=token_ids,
            prompt_logprobs=prompt_logprobs,
            num_cached_tokens=seq.num_cached,
        )

    def _finish(self, seq: Sequence, reason: FinishReason, now: float) -> None:
        seq.finish_reason = reason
        self._scheduler.finish(seq)
        request_id = seq.request.request_id
        self._counters.finish(seq, now, ends_request=len(self._unfinished[request_id]) == 1)
        self._prompt_logprobs.pop(seq, None)
        del self._unfinished[request_id][seq.index]
        if not self._unfinished[request_id]:
            del self._unfinished[request_id]


@dataclass(slots=True)
class _Times:
    """What one step tells the latency histograms; see `EngineCounters.step`."""

    first: list[float] = field(default_factory=list)
    last: dict[float, int] = field(default_factory=dict)
