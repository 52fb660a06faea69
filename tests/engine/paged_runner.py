"""A runner without a model: it keeps a paged cache of what was computed and checks that every row reads what it should.

Its model is a function of (seed, tokens so far), so each sequence's whole output is known beforehand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from llguidance import LLTokenizer, TokenizerWrapper

from firsttoken.engine.engine import Engine
from firsttoken.engine.grammar.compiler import GrammarCompiler
from firsttoken.engine.scheduler import SchedulerLimits
from firsttoken.engine.sequence import Sequence
from firsttoken.engine.step_cost import StepCost
from firsttoken.engine.step_plan import Masks, PlanRow, StepPlan, StepResult
from firsttoken.engine.work_cost import WorkCost
from firsttoken.types import EngineInfo, GenerateRequest, SamplingParams, SequenceOutput, TokenLogprob

VOCAB = 24
EOS = 0
TOKENS = [b"<end>", *(bytes([ord("a") + i]) for i in range(15)), b"ab", b"abc", b"ba", b"1", b"12", b"(", b")", b" "]


def next_token(seed: int, tokens: list[int], allowed: list[int] | None = None) -> int:
    """The model: seeds that differ by a multiple of 8 agree. `allowed`: what a mask leaves it."""
    digest = blake2b(bytes([seed % 8, *tokens]), digest_size=2).digest()
    choices = list(range(VOCAB)) if allowed is None else allowed
    return choices[int.from_bytes(digest, "little") % len(choices)]


class _Tokens:
    eos_token_id = EOS
    bos_token_id = None
    tokens = TOKENS
    special_token_ids = (EOS,)

    def __call__(self, text: str) -> list[int]:
        return [TOKENS.index(char.encode()) for char in text if char.encode() in TOKENS]


def vocabulary() -> LLTokenizer:
    """Its bytes do not matter to the runner, only to grammars."""
    return LLTokenizer(TokenizerWrapper(_Tokens()), n_vocab=VOCAB, eos_token=EOS)


def engine_info(**changes: object) -> EngineInfo:
    values: dict[str, object] = {
        "model": "fake",
        "architecture": "Fake",
        "device": "cpu",
        "device_name": "none",
        "dtype": "float32",
        "weights": "none",
        "attention": "none",
        "max_model_len": 64,
        "vocab_size": VOCAB + 8,
        "token_id_limit": VOCAB,
        "bos_token_id": None,
        "eos_token_ids": (EOS,),
        "default_sampling": {},
        "block_size": 4,
        "num_blocks": 64,
        "max_num_seqs": 8,
        "kv_bytes_per_token": 1,
        "weight_bytes": 1,
        "phases": {},
    }
    return EngineInfo(**(values | changes))  # type: ignore[arg-type]  # values are of many types


def request(
    request_id: str,
    prompt: list[int],
    *,
    n: int = 1,
    priority: int = 0,
    cache_salt: str | None = None,
    arrival: float = 0.0,
    **sampling: object,
) -> GenerateRequest:
    return GenerateRequest(
        request_id=request_id,
        prompt_token_ids=prompt,
        sampling=SamplingParams(**({"seed": 0} | sampling)),  # type: ignore[arg-type]  # values are of many types
        n=n,
        priority=priority,
        cache_salt=cache_salt,
        arrival=arrival,
    )


def alone(
    asked: GenerateRequest, index: int, info: EngineInfo, grammars: GrammarCompiler | None = None
) -> tuple[list[int], str]:
    """Output ids and finish reason of one sequence, were it alone in the world. The request has a seed."""
    sampling = asked.sampling
    assert sampling.seed is not None
    stops = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else set(info.eos_token_ids))
    longest = min(info.max_model_len, info.num_blocks * info.block_size)
    room = longest - len(asked.prompt_token_ids)
    room = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
    output: list[int] = []
    if sampling.grammar is not None and grammars is not None:
        matcher = grammars.get(sampling.grammar).matcher(frozenset(stops))
        mask = np.empty(1, dtype=np.int32)
        while len(output) < room:
            keep_open = sampling.ignore_eos or len(output) < sampling.min_tokens
            if not matcher.fill(mask, keep_open=keep_open):
                return output, "length"
            output.append(next_token(sampling.seed + index, asked.prompt_token_ids + output, allowed_by(mask)))
            matcher.advance(output[-1])
            if output[-1] in stops or (matcher.ended and matcher.complete):
                return output, "stop"
        return output, "length"
    while len(output) < room:
        output.append(next_token(sampling.seed + index, asked.prompt_token_ids + output))
        if output[-1] in stops and len(output) > sampling.min_tokens:
            return output, "stop"
    return output, "length"


def allowed_by(mask: Masks) -> list[int]:
    """The ids of one row's mask."""
    return [id_ for id_ in range(VOCAB) if mask[id_ // 32] >> (id_ % 32) & 1]


@dataclass(slots=True)
class _Slot:
    """What a device keeps for a sequence while it runs."""

    seq: Sequence
    epoch: int
    tokens: list[int]  # all of them, those that the host has not seen too


@dataclass(slots=True)
class _Launched:
    plan: StepPlan
    contexts: list[tuple[list[int], list[bytes]]]  # a row's cache slots, and what they must hold until it is collected
    token_ids: list[int | None]


@dataclass
class PagedRunner:
    """Writes at launch; reads at launch and again at collect, as if the step ran all that time."""

    info: EngineInfo
    plans: list[StepPlan] = field(default_factory=list)
    fail_steps: dict[int, str] = field(default_factory=dict)  # step id -> error
    while_collecting: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._memory: list[bytes | None] = [None] * (self.info.num_blocks * self.info.block_size)
        self._slots: dict[int, _Slot] = {}
        self._launched: deque[_Launched] = deque()
        self._unmasked: list[tuple[int, _Slot]] = []  # rows of the newest plan

    def launch(self, plan: StepPlan) -> None:
        assert plan.rows, "an empty step"
        assert len(self._launched) < 2, "more than two steps launched"
        assert not self._unmasked, "the step before waits for its masks"
        assert len({row.seq.slot for row in plan.rows}) == len(plan.rows), "two rows in one slot"
        shape = [not (row.num_tokens == 1 and row.samples) for row in plan.rows]
        assert shape == sorted(shape), "decode rows come first"
        self.plans.append(plan)
        launched = _Launched(plan, [], [])
        states = [self._state(row) for row in plan.rows]
        for row, state in zip(plan.rows, states, strict=True):
            for position in range(row.start, row.end):
                self._memory[self._at(row.seq, position)] = _content(row.seq, state.tokens[: position + 1])
        for row, state in zip(plan.rows, states, strict=True):
            places = [self._at(row.seq, position) for position in range(row.end)]
            launched.contexts.append((places, [_content(row.seq, state.tokens[: i + 1]) for i in range(row.end)]))
            launched.token_ids.append(None)
            if row.samples:
                assert row.end == len(state.tokens), "only the last known token gives a new one"
                assert row.end < row.seq.max_total_tokens, "scheduled past the sequence's end"
                if row.seq.matcher is not None:
                    self._unmasked.append((len(launched.token_ids) - 1, state))
                    continue
                state.tokens.append(next_token(row.seq.seed, state.tokens))
                launched.token_ids[-1] = state.tokens[-1]
        self._launched.append(launched)
        self._check(launched)
        assert [index for index, _ in self._unmasked] == list(plan.guided), "the plan names its guided rows"

    def mask(self, masks: Masks) -> None:
        assert self._unmasked, "no row waits for a mask"
        assert masks.shape == (len(self._unmasked), 1)
        newest = self._launched[-1]
        for mask, (index, state) in zip(masks, self._unmasked, strict=True):
            state.tokens.append(next_token(state.seq.seed, state.tokens, allowed_by(mask)))
            newest.token_ids[index] = state.tokens[-1]
        self._unmasked = []

    def collect(self) -> StepResult:
        assert len(self._launched) == 2 or not self._unmasked, "the oldest step waits for its masks"
        self.while_collecting()
        launched = self._launched.popleft()
        self._check(launched)
        rows = launched.plan.rows
        step_id = launched.plan.step_id
        return StepResult(
            step_id=step_id,
            token_ids=launched.token_ids,
            logprobs=[_logprob(id_, row) for id_, row in zip(launched.token_ids, rows, strict=True)],
            prompt_logprobs=[_prompt_logprobs(row) for row in rows],
            error=self.fail_steps.get(step_id),
        )

    def improve(self) -> bool:
        assert not self._launched
        return False

    def _state(self, row: PlanRow) -> _Slot:
        seq = row.seq
        assert row.epoch == seq.epoch, "a row of an older epoch"
        assert 0 <= seq.slot < self.info.max_num_seqs, "no such slot"
        if row.fresh:
            self._slots[seq.slot] = _Slot(seq, row.epoch, list(seq.token_ids))
        state = self._slots[seq.slot]
        assert (state.seq, state.epoch) == (seq, row.epoch), "the slot is another sequence's"
        assert row.end <= len(state.tokens), "a token that nobody knows"
        assert state.tokens[: len(seq.token_ids)] == seq.token_ids, "host and device disagree"
        return state

    def _at(self, seq: Sequence, position: int) -> int:
        return seq.block_ids[position // self.info.block_size] * self.info.block_size + position % self.info.block_size

    def _check(self, launched: _Launched) -> None:
        for places, contents in launched.contexts:
            assert [self._memory[place] for place in places] == contents, "a row reads another sequence's tokens"


def _content(seq: Sequence, tokens: list[int]) -> bytes:
    """Keys and values of a token depend on all tokens before it; here on the salt too, which must keep them apart."""
    return blake2b(bytes(tokens) + repr(seq.request.cache_salt).encode(), digest_size=8).digest()


def _logprob(token_id: int | None, row: PlanRow) -> TokenLogprob | None:
    if token_id is None or row.seq.request.sampling.logprobs is None:
        return None
    return TokenLogprob(token_id, -float(row.end), 1, [])


def _prompt_logprobs(row: PlanRow) -> list[TokenLogprob] | None:
    """Those of every known token after the row's, the last row's answer token left out."""
    if row.seq.prompt_logprobs is None:
        return None
    ends = min(row.end, row.seq.num_prompt_tokens - 1)
    return [TokenLogprob(row.seq.token_ids[i], -float(i), 1, []) for i in range(row.start + 1, ends + 1)]


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bench:
    """An engine on a paged runner, and everything it has given out."""

    engine: Engine
    runner: PagedRunner
    clock: Clock
    outputs: dict[tuple[str, int], list[SequenceOutput]] = field(default_factory=dict)

    def step(self) -> list[SequenceOutput]:
        """One step, the pool checked after it."""
        self.clock.now += 0.01
        outputs = self.engine.step()
        self.engine.check()
        for output in outputs:
            self.outputs.setdefault((output.request_id, output.index), []).append(output)
        return outputs

    def run(self, limit: int = 1000) -> None:
        """Steps until there is no work."""
        for _ in range(limit):
            if not self.engine.has_work:
                return
            self.step()
        raise AssertionError(f"work is left after {limit} steps")

    def ids(self, request_id: str, index: int = 0) -> list[int]:
        return [id_ for output in self.outputs.get((request_id, index), []) for id_ in output.token_ids]

    def reason(self, request_id: str, index: int = 0) -> str | None:
        return self.outputs[request_id, index][-1].finish_reason

    def gauge(self, name: str) -> float:
        return self.engine.stats().gauges[name]

    def counter(self, name: str) -> float:
        return self.engine.stats().counters[name]


def bench(
    *,
    max_num_batched_tokens: int = 64,
    max_step_ms: float | None = None,
    step_cost: StepCost | None = None,
    min_chunk: int = 16,
    token_grain: int = 1,
    max_queue: int = 1024,
    enable_prefix_caching: bool = True,
    max_shared_tokens: int | None = None,
    seed: int = 0,
    grammars: GrammarCompiler | None = None,
    work_cost: WorkCost = WorkCost(),
    device_seconds: float = 0.0,
    **info: object,
) -> Bench:
    """An engine of 64 blocks of 4 tokens, 8 slots and a context of 64, unless told otherwise.

    `device_seconds`: how long each step is waited for.
    """
    described = engine_info(**info)
    clock = Clock()

    def wait() -> None:
        clock.now += device_seconds

    runner = PagedRunner(described, while_collecting=wait)
    engine = Engine(
        runner,
        described,
        SchedulerLimits(
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=described.max_num_seqs,
            max_step_ms=max_step_ms,
            step_cost=step_cost,
            min_chunk=min_chunk,
            token_grain=token_grain,
        ),
        max_queue=max_queue,
        enable_prefix_caching=enable_prefix_caching,
        max_shared_tokens=max_shared_tokens,
        seed=seed,
        clock=clock,
        grammars=grammars,
        work_cost=work_cost,
    )
    return Bench(engine, runner, clock)
