"""A real engine over a tiny model, with the logits of every sampled position kept."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from firsttoken.engine.batch import Batch
from firsttoken.engine.engine import Engine
from firsttoken.engine.grammar.compiler import GrammarCompiler
from firsttoken.engine.grammar.vocabulary import vocabulary_of
from firsttoken.engine.kv_scales import measure_kv_scales
from firsttoken.engine.model_runner import ModelRunner, make_kv_cache
from firsttoken.engine.sampler import Sampled, SamplingStep
from firsttoken.engine.scheduler import SchedulerLimits
from firsttoken.engine.step_plan import Masks, StepPlan
from firsttoken.kernels.cpu_forms import CpuLinears, Form
from firsttoken.kernels.cpu_ops import cpu_kernels
from firsttoken.model.config import load_config
from firsttoken.model.loading import build_decoder, open_weights
from firsttoken.model.rope import RopeTable
from firsttoken.model.vocabulary import token_id_limit
from firsttoken.types import EngineInfo, GenerateRequest, SamplingParams, SequenceOutput

BLOCK_SIZE = 4
MAX_LEN = 128


class RecordingRunner(ModelRunner):
    """Keeps the logits that each token was sampled from, by (request id, index, position)."""

    logits_at: dict[tuple[str, int, int], Tensor]
    plans: deque[list[tuple[str, int, int]]]
    fail_next: BaseException | None = None

    def launch(self, plan: StepPlan) -> None:
        if not hasattr(self, "plans"):
            self.logits_at, self.plans = {}, deque()
        sampling = [row for row in plan.rows if row.samples]
        if sampling:
            self.plans.append([(row.seq.request.request_id, row.seq.index, row.end) for row in sampling])
        super().launch(plan)

    def forward(self, batch: Batch) -> Tensor:
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        return super().forward(batch)

    def sample(self, logits: Tensor, step: SamplingStep, masks: Masks | None = None) -> Sampled:
        for key, row in zip(self.plans.popleft(), logits.clone(), strict=True):
            self.logits_at[key] = row
        return super().sample(logits, step, masks)


@dataclass
class Answer:
    """All that one sequence was given."""

    outputs: list[SequenceOutput] = field(default_factory=list)

    @property
    def token_ids(self) -> list[int]:
        return [id_ for output in self.outputs for id_ in output.token_ids]

    @property
    def num_cached_tokens(self) -> int:
        return self.outputs[0].num_cached_tokens


class TinyEngine:
    """Close it: its runner owns a thread."""

    def __init__(
        self,
        folder: Path,
        *,
        num_blocks: int = 256,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 512,
        enable_prefix_caching: bool = True,
        form: Form | None = None,
        fp8_cache: bool = False,
    ) -> None:
        """`form`: low-bit linears instead of dense float32."""
        config = load_config(folder)
        linears = None if form is None else CpuLinears(cpu_kernels(), form)
        decoder = build_decoder(config, open_weights(folder, config), dtype=torch.float32, make_linear=linears)
        rope = RopeTable(config, MAX_LEN)
        limit = token_id_limit(folder)
        scales = measure_kv_scales(decoder, limit, None) if fp8_cache else None
        self.runner = RecordingRunner(
            decoder,
            rope,
            make_kv_cache(config, num_blocks, BLOCK_SIZE, torch.float32, torch.device("cpu"), scales),
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=MAX_LEN,
            token_id_limit=limit,
            eos_token_ids=config.eos_token_ids,
            torch_threads=1,
        )
        self.info = EngineInfo(
            model="tiny",
            architecture=config.architecture,
            device="cpu",
            device_name="",
            dtype="float32",
            weights="",
            attention="",
            max_model_len=MAX_LEN,
            vocab_size=config.vocab_size,
            token_id_limit=limit,
            bos_token_id=None,
            eos_token_ids=config.eos_token_ids,
            default_sampling={},
            block_size=BLOCK_SIZE,
            num_blocks=num_blocks,
            max_num_seqs=max_num_seqs,
            kv_bytes_per_token=0,
            weight_bytes=0,
            phases={},
        )
        limits = SchedulerLimits(max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs, min_chunk=1)
        self.engine = Engine(
            self.runner,
            self.info,
            limits,
            enable_prefix_caching=enable_prefix_caching,
            max_shared_tokens=rope.shareable_tokens,
            grammars=GrammarCompiler(vocabulary_of(str(folder), limit, config.eos_token_ids)),
        )

    def __enter__(self) -> TinyEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()

    def run(self, requests: list[GenerateRequest]) -> dict[str, Answer]:
        """Runs the requests together; answers by request id (of their first sequence)."""
        for request in requests:
            self.engine.add(request)
        answers: dict[str, Answer] = {}
        while self.engine.has_work:
            for output in self.engine.step():
                if output.index == 0:
                    answers.setdefault(output.request_id, Answer()).outputs.append(output)
            self.engine.check()
        return answers

    def run_alone(self, requests: list[GenerateRequest]) -> dict[str, Answer]:
        """Runs one request after the other."""
        answers: dict[str, Answer] = {}
        for request in requests:
            answers |= self.run([request])
        return answers


def request(request_id: str, prompt: list[int], sampling: SamplingParams) -> GenerateRequest:
    return GenerateRequest(request_id=request_id, prompt_token_ids=prompt, sampling=sampling)
