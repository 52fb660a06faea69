"""What goes where in memory, decided before anything is loaded. No torch here.

The budget of a GPU is a share of its whole memory; weights, activations, graphs and the runtime come off it, and the KV
pool gets the rest. On a CPU the pool is a modest part of what is free, since other programs live there too.
"""

from __future__ import annotations

from dataclasses import dataclass

from firsttoken.errors import ConfigError, OutOfMemory
from firsttoken.model.config import ModelConfig
from firsttoken.model.cost import kv_bytes_per_token

GIB = 1 << 30
CPU_POOL = 4 * GIB
CPU_RUNTIME = GIB // 4  # the interpreter and torch themselves
CUDA_RUNTIME = GIB // 2  # context, cuBLAS workspaces, allocator slack
CUDA_GRAPHS = GIB // 4
SMALLEST_CONTEXT = 256  # tokens; a server with less is of no use to anyone


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a launch asks for."""

    model: str  # as the user named it
    config: ModelConfig
    weight_bytes: int
    element_bytes: int  # of an activation
    kv_element_bytes: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    max_model_len: int | None  # None: the largest that fits
    kv_cache_memory: int | None  # bytes; None: what is left
    graphs: bool = False
    measured_activations: int | None = None  # bytes that a profile run's largest step took

    @property
    def block_bytes(self) -> int:
        return kv_bytes_per_token(self.config, self.kv_element_bytes) * self.block_size

    @property
    def activation_bytes(self) -> int:
        """The largest step's tensors at their peak, the logits of all rows and the sampler's counts."""
        config = self.config
        counts = self.max_num_seqs * config.vocab_size * 5
        if self.measured_activations is not None:
            return self.measured_activations + counts
        width = 4 * config.hidden_size + 2 * (config.q_size + 2 * config.kv_size) + 3 * config.intermediate_size
        hidden = self.max_num_batched_tokens * width * self.element_bytes
        logits = self.max_num_seqs * config.vocab_size * 4 * 4  # float32: raw, shaped, sorted, ids
        return hidden + logits + counts


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What the device has, in bytes. `total` is the whole of it and `free` what nobody uses now."""

    kind: str  # "cpu" or "cuda"
    total: int
    free: int
    utilization: float = 0.9  # of a GPU's total

    @property
    def budget(self) -> int:
        if self.kind == "cpu":
            return self.free
        return min(int(self.total * self.utilization), self.free)


def batch_limits(kind: str, total: int, seqs: int | None = None, tokens: int | None = None) -> tuple[int, int]:
    """Sequences and tokens a step on a device of `total` bytes, where `seqs` and `tokens` were asked for or None.

    A GPU's grow with its memory, for the logits of all rows take their share of it. Raises ConfigError.
    """
    if kind == "cpu":
        usual_seqs, usual_tokens = 32, 2048
    else:
        small = (128, 8192) if total > 20 * GIB else (64, 4096)
        usual_seqs, usual_tokens = (256, 32768) if total > 40 * GIB else small
    if seqs is not None and tokens is not None and tokens < seqs:
        raise ConfigError(
            f"--max-num-batched-tokens {tokens} must be at least --max-num-seqs {seqs}, since every running sequence "
            "decodes one token a step."
        )
    if seqs is not None:
        return seqs, tokens or max(usual_tokens, seqs)
    return min(usual_seqs, tokens or usual_seqs), tokens or usual_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Bytes by purpose, and what they hold."""

    weight_bytes: int
    activation_bytes: int
    runtime_bytes: int  # runtime and graphs
    kv_bytes: int
    num_blocks: int
    block_size: int
    max_model_len: int  # tokens

    @property
    def kv_tokens(self) -> int:
        return self.num_blocks * self.block_size


def plan_memory(demand: Demand, memory: DeviceMemory) -> MemoryPlan:
    """The plan, or OutOfMemory (ConfigError where no memory would help) with the numbers and the nearest that works."""
    longest = demand.config.context_length
    if demand.max_model_len is not None and demand.max_model_len > longest:
        raise ConfigError(
            f"--max-model-len {demand.max_model_len} is more than the {longest} tokens that {demand.model} is made "
            f"for; use {longest} or less, or stretch its positions with --rope-scaling."
        )
    runtime = CPU_RUNTIME if memory.kind == "cpu" else CUDA_RUNTIME + (CUDA_GRAPHS if demand.graphs else 0)
    left = memory.budget - demand.weight_bytes - demand.activation_bytes - runtime
    smallest = _blocks(min(SMALLEST_CONTEXT, demand.max_model_len or longest), demand.block_size) * demand.block_bytes
    if left < smallest:
        raise OutOfMemory(_too_large(demand, memory, smallest - left))
    kv_bytes = _pool(demand, memory, left)
    num_blocks = kv_bytes // demand.block_bytes
    fits = num_blocks * demand.block_size
    if demand.max_model_len is not None and fits < demand.max_model_len:
        raise OutOfMemory(_context_too_long(demand, memory, kv_bytes, left, fits))
    if fits < min(SMALLEST_CONTEXT, longest):
        raise OutOfMemory(
            f"--kv-cache-memory {demand.kv_cache_memory} holds {fits} tokens; give it at least {smallest} bytes "
            f"({SMALLEST_CONTEXT} tokens)."
        )
    return MemoryPlan(
        weight_bytes=demand.weight_bytes,
        activation_bytes=demand.activation_bytes,
        runtime_bytes=runtime,
        kv_bytes=num_blocks * demand.block_bytes,
        num_blocks=num_blocks,
        block_size=demand.block_size,
        max_model_len=min(longest, fits) if demand.max_model_len is None else demand.max_model_len,
    )


def _blocks(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)


def _pool(demand: Demand, memory: DeviceMemory, left: int) -> int:
    """Bytes of the KV pool."""
    if demand.kv_cache_memory is None:
        if memory.kind != "cpu":
            return left
        asked = _blocks(demand.max_model_len or 0, demand.block_size) * demand.block_bytes
        return min(left, max(min(CPU_POOL, left // 4), asked))
    available = left
    if memory.kind != "cpu":  # bytes that the user asked for outright may go beyond the share, not beyond the card
        available += memory.free - memory.budget
    if demand.kv_cache_memory > available:
        raise OutOfMemory(
            f"--kv-cache-memory {demand.kv_cache_memory} ({_size(demand.kv_cache_memory)}) does not fit: beside "
            f"{demand.model}'s weights ({_size(demand.weight_bytes)}) there is room for {available} bytes "
            f"({_size(available)})."
        )
    return demand.kv_cache_memory


def _too_large(demand: Demand, memory: DeviceMemory, lack: int) -> str:
    beside = memory.budget + lack - demand.weight_bytes
    needs = (
        f"{demand.model} needs {_size(memory.budget + lack)} (weights {_size(demand.weight_bytes)}, activations, "
        f"runtime and the smallest KV cache {_size(beside)})"
    )
    if memory.kind == "cpu":
        free = f"but only {_size(memory.free)} of this machine's memory is free"
        return f"{needs}, {free}; free {_size(lack)} more or use a smaller model."
    has = f"but may use {_size(memory.budget)} of the GPU's {_size(memory.total)}"
    share = (memory.budget + lack) / memory.total
    if memory.budget + lack <= memory.free and share <= 0.97:
        return f"{needs}, {has}; --gpu-memory-utilization {_round_up(share):.2f} is enough."
    if memory.budget + lack <= memory.total * memory.utilization:
        return f"{needs}, {has}, for other programs hold the rest; free {_size(lack)} of it."
    smaller = _fewer(demand, lack)
    if smaller:
        return f"{needs}, {has}; {smaller} is enough."
    return f"{needs}, {has}; use a smaller model, a larger GPU, or --device cpu."


def _fewer(demand: Demand, lack: int) -> str | None:
    """Smaller batches that free enough, as flags."""
    per_row = demand.config.vocab_size * 21
    rows = demand.max_num_seqs - _blocks(lack, per_row)
    return f"--max-num-seqs {rows}" if rows >= 1 else None


def _context_too_long(demand: Demand, memory: DeviceMemory, kv_bytes: int, left: int, fits: int) -> str:
    assert demand.max_model_len is not None
    needed = _blocks(demand.max_model_len, demand.block_size) * demand.block_bytes
    text = (
        f"A context of {demand.max_model_len} tokens needs {_size(needed)} of KV cache and there are {_size(kv_bytes)} "
        f"beside {demand.model}'s weights ({_size(demand.weight_bytes)}); use --max-model-len {fits} or less"
    )
    if kv_bytes < needed <= left:
        return f"{text}, or --kv-cache-memory {needed}."
    share = (memory.budget + needed - left) / memory.total
    if memory.kind != "cpu" and memory.budget + needed - left <= memory.free and share <= 0.97:
        return f"{text}, or --gpu-memory-utilization {_round_up(share):.2f}."
    return f"{text}."


def _round_up(share: float) -> float:
    return int(share * 100 + 0.9999) / 100


def _size(size: int) -> str:
    """Bytes in the unit that leaves digits to read: a small model's share of a GiB would be 0.00."""
    if size >= GIB // 10:
        return f"{size / GIB:.2f} GiB"
    return f"{size / (1 << 20):.2f} MiB"
