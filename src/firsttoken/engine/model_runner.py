"""Runs step plans on the model: the owner of the KV tensors and of the per-slot state on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from firsttoken.engine.batch import Batch, BatchBuilder, PromptLogprobs, lazy_zeros, to_device
from firsttoken.engine.sampler import Sampled, Sampler, SamplingStep, token_logprobs
from firsttoken.engine.step_lane import InlineLane, Lane, ThreadLane
from firsttoken.engine.step_plan import Masks, StepPlan, StepResult
from firsttoken.engine.step_shape import sampled_rows
from firsttoken.errors import OutOfMemory
from firsttoken.kernels import sampling
from firsttoken.kernels.gpu import attends, on_gpu
from firsttoken.kernels.plan import KVLayer
from firsttoken.model.config import ModelConfig
from firsttoken.model.decoder import Decoder
from firsttoken.model.rope import RopeTable
from firsttoken.types import TokenLogprob

if TYPE_CHECKING:
    from firsttoken.engine.cuda_steps import CudaSteps, Stepped

_PROMPT_LOGPROB_ROWS = 256  # logits of a long prompt are made this many rows at a time

Scored = tuple[Tensor, Tensor, Tensor, Tensor]  # as `kernels.sampling.logprobs` gives


def make_kv_cache(
    config: ModelConfig,
    num_blocks: int,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
    scales: Many[Tensor] | None = None,
) -> list[KVLayer]:
    """One zeroed layer of cache a decoder layer. On a CPU, pages take memory only once they are used.

    With `scales`, [2, kv_heads] a layer, it holds E4M3 numbers instead of `dtype`.
    """
    shape = (num_blocks, config.num_kv_heads, block_size, config.head_dim)
    dtype = dtype if scales is None else torch.uint8
    layers: Many[Tensor | None] = [None] * config.num_layers if scales is None else scales
    return [KVLayer(lazy_zeros(shape, dtype, device), lazy_zeros(shape, dtype, device), each) for each in layers]


@dataclass(frozen=True, slots=True)
class _Computed:
    """A step whose tokens are yet to be chosen."""

    hidden: Tensor  # [tokens, hidden]
    logits: Tensor | None  # [sampling rows, vocab] float32, where there are any and they are not chosen from by a graph
    stepped: Stepped | None


@dataclass(frozen=True, slots=True)
class _StepOutput:
    """A step's results, perhaps still being computed, and where each belongs."""

    plan_rows: int
    batch: Batch
    step: SamplingStep
    sampled: Sampled | None
    prompt: list[Scored]  # one an entry of batch.prompt_logprobs
    done: torch.cuda.Event | None


class ModelRunner:
    """A `Runner`. Plans are read when launched and run in order, on a GPU's stream or in a thread of their own."""

    def __init__(
        self,
        decoder: Decoder,
        rope: RopeTable,
        kv: Many[KVLayer],
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        token_id_limit: int,
        eos_token_ids: tuple[int, ...] = (),
        torch_threads: int | None = None,
        graphs: Many[int] = (),
    ) -> None:
        """`token_id_limit`: ids from here up are padding and never sampled. `torch_threads`: of the ops that torch runs
        on a CPU; None is torch's own choice.

        `graphs`: the rows of decode steps that run as CUDA graphs, captured now as those of short prompts are; without
        any nothing is captured.
        """
        config = decoder.config
        self.decoder = decoder
        self.kv = kv
        self.max_num_batched_tokens = max_num_batched_tokens
        self._rope = rope
        self._device = decoder.device
        self._scale = 1.0 / math.sqrt(config.head_dim)
        self._builder = BatchBuilder(
            max_num_seqs=max_num_seqs, max_model_len=max_model_len, block_size=kv[0].block_size
        )
        self._sampler = Sampler(
            max_num_seqs=max_num_seqs, vocabulary=token_id_limit, eos_token_ids=eos_token_ids, device=self._device
        )
        self._last_ids = torch.zeros(max_num_seqs, dtype=torch.int64, device=self._device)
        self._vocabulary = token_id_limit

        def prepare() -> None:
            if torch_threads is not None:
                torch.set_num_threads(torch_threads)

        self._cuda: CudaSteps | None = None
        if on_gpu(decoder.embedding) and attends(config.head_dim):
            from firsttoken.engine.cuda_steps import CudaSteps

            with torch.inference_mode():
                self._cuda = CudaSteps(
                    decoder,
                    rope,
                    kv,
                    self._last_ids,
                    table_shape=self._builder.table_shape,
                    max_tokens=max_num_batched_tokens,
                    vocabulary=token_id_limit,
                    scale=self._scale,
                    sizes=graphs,
                )
                if graphs:
                    self._cuda.capture()

        self._lane: Lane[_StepOutput | None] = InlineLane() if self._device.type == "cuda" else ThreadLane(prepare)
        self._launched: list[StepPlan] = []
        self._unmasked: Callable[[Masks], _StepOutput] | None = None  # what is left of the newest plan

    def launch(self, plan: StepPlan) -> None:
        batch = self._builder.build(plan)
        step = self._sampler.prepare(plan.rows, batch.sampling_rows)
        num_rows = len(plan.rows)
        self._launched.append(plan)
        if not plan.guided:
            self._lane.submit(lambda: self._choose(num_rows, batch, step, self._compute(batch, step)))
            return
        computed: list[_Computed | Exception] = []

        def compute() -> None:
            try:
                computed.append(self._compute(batch, step))
            except Exception as error:  # raised again by the second half, whose result is the step's
                computed.append(error)

        def choose(masks: Masks) -> _StepOutput:
            first = computed.pop()
            if isinstance(first, Exception):
                raise first
            return self._choose(num_rows, batch, step, first, masks)

        self._lane.submit(compute)
        self._unmasked = choose

    def mask(self, masks: Masks) -> None:
        choose, self._unmasked = self._unmasked, None
        assert choose is not None, "the newest plan has no guided rows"
        self._lane.submit(lambda: choose(masks))

    def collect(self) -> StepResult:
        plan = self._launched.pop(0)
        if plan.guided:
            self._lane.take()  # the first half
        try:
            output = self._lane.take()
            assert output is not None
            return _to_host(output)
        except (OutOfMemory, MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        nothing = len(plan.rows)
        return StepResult(
            step_id=plan.step_id,
            token_ids=[None] * nothing,
            logprobs=[None] * nothing,
            prompt_logprobs=[None] * nothing,
            error=f"The {self._device.type} ran out of memory in a step of {plan.num_tokens} tokens; start again with "
            "a smaller --max-num-batched-tokens, --max-num-seqs or --gpu-memory-utilization.",
        )

    @torch.inference_mode()
    def improve(self) -> bool:
        return self._cuda is not None and self._cuda.improve()

    def close(self) -> None:
        """Ends the thread. Launched steps finish first; their results are lost."""
        self._lane.close()

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [tokens, hidden] of a batch; writes its keys and values. For a CPU, and for plain torch."""
        token_ids = batch.input_ids(self._last_ids)
        rope, rows = self._rope.rows(to_device(batch.positions, self._device), to_device(batch.lengths, self._device))
        plan = batch.attention_plan(rows, self.decoder.config.num_heads, self._scale)
        return self.decoder.forward(token_ids, self.kv, plan, rope)

    def score(self, plan: StepPlan) -> Tensor:
        """Float32 logits [tokens, ids] of every token of a plan, in its order; padding ids are left out.

        Only while no step is launched; the next one may overwrite them.
        """
        assert not self._launched, "a step is queued"
        batch = self._builder.build(plan)
        scored: list[Tensor] = []
        self._lane.submit(lambda: scored.append(self._all_logits(batch)))
        self._lane.take()
        return scored.pop()

    def logits(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Float32 logits [sampling rows, vocab]."""
        tokens = batch.sampling_tokens
        count = len(tokens)
        if self._device.type == "cuda":  # the library prepares for each number of rows anew
            tokens = np.pad(tokens, (0, sampled_rows(count) - count), mode="edge")
        if len(tokens) != len(hidden):
            hidden = hidden[to_device(tokens, self._device)]
        return self.decoder.logits(hidden)[:count]

    def sample(self, logits: Tensor, step: SamplingStep, masks: Masks | None = None) -> Sampled:
        """The next ids, which the following step's decode rows read on the device."""
        sampled = self._sampler.sample(logits, step, masks)
        self._last_ids[to_device(step.slots, self._device)] = sampled.ids
        return sampled

    @torch.inference_mode()
    def _all_logits(self, batch: Batch) -> Tensor:
        stepped = None if self._cuda is None else self._cuda.run(batch)
        logits = None if stepped is None else stepped.logits
        if logits is None:
            logits = self.decoder.logits(self.forward(batch) if stepped is None else stepped.hidden)
        return logits[:, : self._vocabulary]

    @torch.inference_mode()
    def _compute(self, batch: Batch, step: SamplingStep) -> _Computed:
        stepped = None if self._cuda is None else self._cuda.run(batch)
        hidden = self.forward(batch) if stepped is None else stepped.hidden
        logits = None if stepped is None else stepped.logits
        by_graph = stepped is not None and stepped.greedy is not None and not step.groups
        if logits is None and batch.sampling_rows and not by_graph:
            logits = self.logits(hidden, batch)
        return _Computed(hidden, logits, stepped)

    @torch.inference_mode()
    def _choose(
        self, plan_rows: int, batch: Batch, step: SamplingStep, computed: _Computed, masks: Masks | None = None
    ) -> _StepOutput:
        hidden, logits, stepped = computed.hidden, computed.logits, computed.stepped
        sampled = None
        if not batch.sampling_rows:
            self._sampler.reset(step)
        elif self._cuda is None or stepped is None or stepped.greedy is None or step.groups:
            assert logits is not None
            sampled = self.sample(logits, step, masks)
        else:
            self._sampler.reset(step)
            sampled = Sampled(self._cuda.choose(stepped.greedy, len(batch.sampling_rows)), None)
        prompt = [self._score(hidden, wanted) for wanted in batch.prompt_logprobs]
        if self._device.type != "cuda":
            return _StepOutput(plan_rows, batch, step, sampled, prompt, None)
        if sampled is not None:
            sampled = Sampled(_pinned(sampled.ids), None if sampled.logprobs is None else _pinned_all(sampled.logprobs))
        prompt = [_pinned_all(scored) for scored in prompt]
        done = torch.cuda.Event()
        done.record()
        return _StepOutput(plan_rows, batch, step, sampled, prompt, done)

    def _score(self, hidden: Tensor, wanted: PromptLogprobs) -> Scored:
        pieces = []
        for start in range(0, len(wanted.tokens), _PROMPT_LOGPROB_ROWS):
            piece = slice(start, start + _PROMPT_LOGPROB_ROWS)
            logits = self.decoder.logits(hidden[to_device(wanted.tokens[piece], self._device)])
            targets = to_device(wanted.targets[piece], self._device)
            pieces.append(sampling.logprobs(logits[:, : self._vocabulary], targets, wanted.count))
        chosen, ranks, ids, values = (torch.cat(parts) for parts in zip(*pieces, strict=True))
        return chosen, ranks, ids, values


def _pinned(tensor: Tensor) -> Tensor:
    """A copy on the host that the stream makes when it gets there."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


def _pinned_all(scored: Scored) -> Scored:
    chosen, ranks, ids, values = scored
    return _pinned(chosen), _pinned(ranks), _pinned(ids), _pinned(values)


def _to_host(output: _StepOutput) -> StepResult:
    if output.done is not None:
        output.done.synchronize()
    batch, step = output.batch, output.step
    token_ids: list[int | None] = [None] * output.plan_rows
    logprobs: list[TokenLogprob | None] = [None] * output.plan_rows
    prompt: list[list[TokenLogprob] | None] = [None] * output.plan_rows
    if output.sampled is not None:
        ids: list[int] = output.sampled.ids.tolist()
        for row, id_ in zip(batch.sampling_indices, ids, strict=True):
            token_ids[row] = id_
        if output.sampled.logprobs is not None:
            assert step.logprob_rows is not None
            rows = step.logprob_rows.tolist()
            scored = token_logprobs([ids[i] for i in rows], output.sampled.logprobs, step.logprob_counts)
            for i, logprob in zip(rows, scored, strict=True):
                logprobs[batch.sampling_indices[i]] = logprob
    for wanted, parts in zip(batch.prompt_logprobs, output.prompt, strict=True):
        targets = wanted.targets.tolist()
        prompt[wanted.row] = token_logprobs(targets, parts, [wanted.count] * len(targets))
    return StepResult(step_id=batch.step_id, token_ids=token_ids, logprobs=logprobs, prompt_logprobs=prompt)


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, OutOfMemory, MemoryError)):
        return True
    # plain RuntimeErrors: what torch's CPU allocator and the CUDA driver say
    return "can't allocate memory" in str(error) or "CUDA error: out of memory" in str(error)
