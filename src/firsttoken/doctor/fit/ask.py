"""What is asked of a device, and the answer: the engine's own memory plan for it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from firsttoken.doctor.fit.form import Flags, Form
from firsttoken.doctor.fit.speed import DENSE, KV_READ, KV_READ_FP8, QUANTISED, Rates, StepTimes
from firsttoken.errors import ConfigError, OutOfMemory
from firsttoken.model.config import ModelConfig
from firsttoken.model.memory_plan import Demand, DeviceMemory, MemoryPlan, batch_limits, plan_memory

BLOCK = 16  # tokens, as serve's default
ENGINE_SHARE = 0.9  # of a GPU's memory, likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What holds the model."""

    name: str
    memory: DeviceMemory
    rates: Rates
    capability: tuple[int, int] | None = None

    @property
    def on_gpu(self) -> bool:
        return self.memory.kind == "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A launch in question. None means what `serve` would choose."""

    model: str
    config: ModelConfig
    device: Device
    form: Form
    context: int | None = None  # tokens that one sequence may hold
    concurrency: int = 1  # sequences that hold so many at once
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_memory: int | None = None

    @property
    def batch(self) -> tuple[int, int]:
        """Sequences and tokens a step. Raises ConfigError."""
        memory, tokens = self.device.memory, self.max_num_batched_tokens
        return batch_limits(memory.kind, memory.total, self._seqs, tokens)

    @property
    def _seqs(self) -> int | None:
        """What --max-num-seqs must say; None where `serve` chooses enough by itself."""
        if self.max_num_seqs is not None:
            return self.max_num_seqs
        usual, _ = batch_limits(self.device.memory.kind, self.device.memory.total)
        return self.concurrency if self.concurrency > usual else None

    @property
    def flags(self) -> Flags:
        """Of `serve`, for exactly this."""
        flags = dict(self.form.flags)
        if self.context is not None:
            flags["max-model-len"] = str(self.context)
        if self._seqs is not None:
            flags["max-num-seqs"] = str(self._seqs)
        if self.max_num_batched_tokens is not None:
            flags["max-num-batched-tokens"] = str(self.max_num_batched_tokens)
        if self.kv_cache_memory is not None:
            flags["kv-cache-memory"] = str(self.kv_cache_memory)
        if self.device.on_gpu and self.device.memory.utilization != ENGINE_SHARE:
            flags["gpu-memory-utilization"] = f"{self.device.memory.utilization:g}"
        return flags

    def command(self) -> str:
        """What to type."""
        flags = [part for name, value in self.flags.items() for part in (f"--{name}", value)]
        return shlex.join(["firsttoken", "serve", self.model, *flags])

    def demand(self) -> Demand:
        seqs, tokens = self.batch
        return Demand(
            model=self.model,
            config=self.config,
            weight_bytes=self.form.held(self.config),
            element_bytes=self.form.activation,
            kv_element_bytes=self.form.kv,
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            block_size=BLOCK,
            max_model_len=self.context,
            kv_cache_memory=self.kv_cache_memory,
            graphs=self.device.on_gpu and self.form.activation == 2,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """An ask that fits."""

    ask: Ask  # with what was added so that it does
    plan: MemoryPlan
    longest: int  # tokens that one sequence could hold, were it asked for

    @property
    def context(self) -> int:
        return self.plan.max_model_len

    def sequences(self, context: int) -> int:
        """How many sequences of `context` tokens the KV cache holds at once."""
        return min(self.plan.num_blocks // blocks(context), self.ask.batch[0])

    @property
    def times(self) -> StepTimes:
        ask = self.ask
        return StepTimes(
            config=ask.config,
            weight_bytes=ask.form.read(ask.config),
            kv_bytes_per_token=ask.form.kv_per_token(ask.config),
            rates=ask.device.rates,
            shares=QUANTISED.get(ask.form.packed, DENSE),
            kv_read=KV_READ_FP8 if ask.form.kv == 1 else KV_READ,
        )


def blocks(context: int) -> int:
    return -(-context // BLOCK)


def fit(ask: Ask) -> Fit:
    """The plan that `serve` would make. Raises OutOfMemory with the reason where it does not fit, and ConfigError."""
    if ask.batch[0] < ask.concurrency:
        raise ConfigError(
            f"--concurrency {ask.concurrency} wants more sequences at once than the {ask.batch[0]} that "
            "--max-num-seqs or --max-num-batched-tokens allow."
        )
    plan = plan_memory(ask.demand(), ask.device.memory)
    needed = ask.concurrency * blocks(ask.context or 1)
    if plan.num_blocks < needed and ask.device.memory.kind == "cpu" and ask.kv_cache_memory is None:
        # A CPU's pool is modest unless it is asked for: other programs live there too.
        return fit(replace(ask, kv_cache_memory=needed * ask.demand().block_bytes))
    if plan.num_blocks < needed:
        size = ask.form.kv_per_token(ask.config) * BLOCK / 2**30
        raise OutOfMemory(
            f"{ask.concurrency} sequences of {ask.context} tokens need {needed * size:.2f} GiB of KV cache at once and "
            f"there are {plan.num_blocks * size:.2f} GiB; the rest would wait or be put off."
        )
    longest = plan if ask.context is None else plan_memory(replace(ask, context=None).demand(), ask.device.memory)
    return Fit(ask=ask, plan=plan, longest=max(longest.max_model_len, plan.max_model_len))


def longest_context(ask: Ask, limit: int) -> int | None:
    """The longest context up to `limit` tokens at which `ask` fits, in whole blocks; None where it is of no use."""
    fits, too_many = 0, blocks(min(limit, ask.config.context_length)) + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        try:
            fit(replace(ask, context=min(middle * BLOCK, ask.config.context_length)))
            fits = middle
        except OutOfMemory:
            too_many = middle
    return fits * BLOCK if fits * BLOCK >= 256 else None
