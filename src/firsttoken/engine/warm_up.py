"""The steps that run before any request does, so that the first one pays for nothing; they are timed on the way."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from firsttoken.engine.sequence import Sequence
from firsttoken.engine.step_cost import StepLoad
from firsttoken.engine.step_plan import PlanRow, Runner, StepPlan
from firsttoken.errors import OutOfMemory
from firsttoken.types import GenerateRequest, Grammar, SamplingParams

_GREEDY = SamplingParams(temperature=0.0)
_PATHS = (  # one of each way to choose a token
    SamplingParams(),
    SamplingParams(top_k=20, top_p=0.8, min_p=0.05),
    SamplingParams(top_p=0.9),
    SamplingParams(repetition_penalty=1.1, presence_penalty=0.1, frequency_penalty=0.1),
    SamplingParams(temperature=0.0, logit_bias={0: -1.0}, logprobs=5, prompt_logprobs=1),
    SamplingParams(grammar=Grammar(kind="json_object", source="")),
)
_LENGTHS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384)  # prefills, while time lasts
_CONTINUED = ((1024, 3072), (1024, 15360))  # chunks over what is cached already: (tokens, cached), likewise
# On a GPU beside a decode row, for that is what step costs are for: chunks of every form that attention has for them
_BESIDE = ((63, 0), (511, 0), (2047, 0), (1023, 3072), (511, 7168), (1023, 15360), (511, 30720), (1023, 30720))
_ALONE = (2048, 4096)  # prefills that the library's attention takes
_ROWS = (1, 2, 8)  # decodes over a short context
_LONG_ROWS, _LONG_CONTEXT = 8, 2048  # and over a long one: without it, what a token of context costs would be noise


class WarmUp:
    """Runs made-up sequences over the empty KV pool; what they leave there is never read."""

    def __init__(
        self,
        runner: Runner,
        *,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int,
        max_tokens: int,
        max_len: int,
        token_id_limit: int,
        on_gpu: bool = False,
    ) -> None:
        """`on_gpu`: a step's first run compiles or looks for kernels, so its second one is timed."""
        self._runner = runner
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._max_num_seqs = max_num_seqs
        self._max_tokens, self._max_len = min(max_tokens, max_len), max_len
        self._mask_words = -(-token_id_limit // 32)
        self._on_gpu = on_gpu
        self._step = -1  # counts down: real steps count up from 0

    def run(self, budget: float) -> list[tuple[StepLoad, float]]:
        """Every kind of step once and some again; on a CPU stops adding longer ones after `budget` seconds.

        Returns loads and their milliseconds. Raises OutOfMemory where a step fails.
        """
        start = time.perf_counter()
        points: list[tuple[StepLoad, float]] = []
        self._time([self._prefill(0, 8, _GREEDY)])  # what the first of all steps pays is no step's cost
        for rows in _ROWS:
            if rows <= min(self._max_num_seqs, self._num_blocks):
                decodes = [self._decode(slot, self._block_size) for slot in range(rows)]
                points.append(self._time(decodes))
        context = min(_LONG_CONTEXT, self._max_len, self._num_blocks * self._block_size)
        slots = range(min(_LONG_ROWS, self._max_num_seqs))
        points.append(self._time([self._decode(slot, context) for slot in slots]))
        points += self._beside() if self._on_gpu else self._prefills(start, budget)
        for params in _PATHS:
            self._time([self._prefill(0, 4, params)])
        return points

    def _prefills(self, start: float, budget: float) -> list[tuple[StepLoad, float]]:
        points: list[tuple[StepLoad, float]] = []
        for length in _LENGTHS:
            # The first runs however late it is: without it the cost of a prompt's token would be unknown.
            if points and not (length <= self._max_tokens and self._in_time(length, points[-1], start, budget)):
                break
            points.append(self._time([self._prefill(0, length, _GREEDY)]))
        for tokens, cached in _CONTINUED:
            if not (tokens + cached <= self._max_tokens and self._in_time(tokens, points[-1], start, budget)):
                break
            points.append(self._time([self._continued(0, tokens, cached)]))
        return points

    @staticmethod
    def _in_time(tokens: int, last: tuple[StepLoad, float], start: float, budget: float) -> bool:
        """Whether a prefill of `tokens` would end within the budget, at the pace of the last one."""
        load, ms = last
        return time.perf_counter() - start + ms / 1000 * tokens / load.num_tokens <= budget

    def _beside(self) -> list[tuple[StepLoad, float]]:
        points: list[tuple[StepLoad, float]] = []
        room = min(self._max_len, self._num_blocks * self._block_size)
        if self._max_num_seqs > 1:
            for tokens, cached in _BESIDE:
                if tokens < self._max_tokens and tokens + cached <= room:
                    points.append(self._time([self._decode(0, self._block_size), self._continued(1, tokens, cached)]))
        for length in _ALONE:
            if length <= min(self._max_tokens, room):
                self._time([self._prefill(0, length, _GREEDY)])
        return points

    def _time(self, rows: list[PlanRow]) -> tuple[StepLoad, float]:
        best = float("inf")
        for _ in range(2 if rows[0].num_tokens == 1 or self._on_gpu else 1):
            begin = time.perf_counter()
            guided = tuple(i for i, row in enumerate(rows) if row.seq.request.sampling.grammar is not None)
            self._runner.launch(StepPlan(self._step, tuple(rows), guided))
            if guided:
                self._runner.mask(np.full((len(guided), self._mask_words), -1, dtype=np.int32))
            result = self._runner.collect()
            best = min(best, time.perf_counter() - begin)
            self._step -= 1
            if result.error is not None:
                raise OutOfMemory(result.error)
        load = StepLoad()
        for row in rows:
            if row.num_tokens == 1:
                load = replace(
                    load, decode_rows=load.decode_rows + 1, decode_context=load.decode_context + row.start + 1
                )
            else:
                load = load.with_chunk(row.start, row.num_tokens)
        return load, best * 1000

    def _decode(self, slot: int, context: int) -> PlanRow:
        seq = self._sequence(slot, context, _GREEDY)
        return PlanRow(seq, 0, len(seq.token_ids) - 1, 1, True, True)

    def _prefill(self, slot: int, length: int, params: SamplingParams) -> PlanRow:
        length = min(length, self._max_tokens, self._num_blocks * self._block_size)
        return PlanRow(self._sequence(slot, length, params), 0, 0, length, True, True)

    def _continued(self, slot: int, tokens: int, cached: int) -> PlanRow:
        return PlanRow(self._sequence(slot, cached + tokens, _GREEDY), 0, cached, tokens, True, True)

    def _sequence(self, slot: int, length: int, params: SamplingParams) -> Sequence:
        ids = [0] * length
        request = GenerateRequest(request_id="warm-up", prompt_token_ids=ids, sampling=params)
        seq = Sequence(request, 0, 0, ids, length, length + 1)
        seq.slot = slot
        blocks = -(-length // self._block_size)
        seq.block_ids = [(slot + i) % self._num_blocks for i in range(blocks)]
        return seq
