"""From a configuration to an engine that is warm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from firsttoken.config import EngineConfig
from firsttoken.engine.device import Placement, place, read_memory
from firsttoken.engine.early_builds import early_builds
from firsttoken.engine.engine import Engine
from firsttoken.engine.grammar.compiler import GrammarCompiler
from firsttoken.engine.grammar.vocabulary import vocabulary_of, wait_for
from firsttoken.engine.kv_scales import KVScales, choose_kv_scales
from firsttoken.engine.model_runner import ModelRunner, make_kv_cache
from firsttoken.engine.profile_run import activation_bytes
from firsttoken.engine.scheduler import SchedulerLimits
from firsttoken.engine.step_cost import StepCost
from firsttoken.engine.warm_up import WarmUp
from firsttoken.engine.weight_forms import check_rounding, describe_weights, make_linears
from firsttoken.engine.work_cost import WorkCost
from firsttoken.errors import ConfigError, OutOfMemory
from firsttoken.kernels.cpu_ops import cpu_kernels, why_no_kernels
from firsttoken.kernels.gpu import has_triton
from firsttoken.kernels.gpu.launch_table import use_table
from firsttoken.model.config import ModelConfig, load_config
from firsttoken.model.cost import kv_bytes_per_token, weight_bytes
from firsttoken.model.decoder import Decoder
from firsttoken.model.loading import build_decoder, open_weights
from firsttoken.model.memory_plan import Demand, DeviceMemory, MemoryPlan, plan_memory
from firsttoken.model.rope import RopeTable
from firsttoken.model.vocabulary import token_id_limit
from firsttoken.types import EngineInfo

Progress = Callable[[str, float], None]  # phase, fraction of the whole start

WARM_UP_SECONDS = 0.3  # after which no longer prefill is timed on a CPU
TOKEN_GRAIN = 512  # of steps on a GPU that prefill
_SHARES = {
    "config": (0.0, 0.02),
    "device": (0.02, 0.05),
    "weights": (0.05, 0.7),
    "kernels": (0.7, 0.78),
    "profile": (0.78, 0.8),
    "kv": (0.8, 0.85),
    "warm-up": (0.85, 1.0),
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine, and the runner whose `close` ends its thread."""

    engine: Engine
    runner: ModelRunner


def load_engine(config: EngineConfig, on_progress: Progress) -> Engine:
    """Loads the model, makes the KV pool, warms everything up and measures what a step costs.

    Raises ConfigError, ModelError or OutOfMemory, each before anything large is read where that can be known.
    """
    return load(config, on_progress).engine


def load(config: EngineConfig, on_progress: Progress) -> Loaded:
    """As `load_engine`, for a caller that outlives its engine."""
    return _Loader(config, on_progress).load()


class _Loader:
    """One load: `load` is called once."""

    def __init__(self, config: EngineConfig, on_progress: Progress) -> None:
        self._config = config
        self._on_progress = on_progress
        self._phases: dict[str, float] = {}
        self._memory: DeviceMemory  # read once, before anything is there

    def load(self) -> Loaded:
        config = self._config
        _check(config)
        with self._phase("config"):
            model = load_config(config.path).with_rope(config.rope_scaling)
            check_rounding(config, model)
            limit = token_id_limit(config.path)
            vocabulary = vocabulary_of(config.path, limit, model.eos_token_ids)
        with self._phase("device"):  # a first start compiles the CPU kernels here; a GPU makes its context
            placement = place(config, model.dtype, why_no_kernels, model.kv_scheme)
            plan = self._plan(model, placement)
            if placement.device.type == "cuda":
                use_table(config.launch_table, placement.device_name)
            builds = early_builds(model, placement, plan, limit)
        try:
            with self._phase("weights"):
                decoder, stored = self._decoder(model, placement)
            if builds is not None:
                with self._phase("kernels"):
                    builds.finish(lambda done: self._tell("kernels", done))
        finally:
            if builds is not None:
                builds.close()
        if placement.device.type == "cuda":
            with self._phase("profile"):
                plan = self._plan(model, placement, self._profile(decoder, placement, limit))
        with self._phase("kv"):
            scales = choose_kv_scales(stored, decoder, limit) if placement.fp8_cache else None
            runner, rope = self._runner(model, decoder, placement, plan, limit, scales)
        try:
            with self._phase("warm-up"):
                cost = self._warm(runner, placement, plan, limit)
                wait_for(vocabulary)
        except BaseException:
            runner.close()
            raise
        limits = SchedulerLimits(
            max_num_batched_tokens=placement.max_num_batched_tokens,
            max_num_seqs=placement.max_num_seqs,
            max_step_ms=placement.max_step_ms,
            step_cost=cost,
            token_grain=TOKEN_GRAIN if placement.device.type == "cuda" else 1,
        )
        info = self._info(model, decoder, placement, plan, limit, scales)
        engine = Engine(
            runner,
            info,
            limits,
            max_queue=config.max_queue,
            enable_prefix_caching=config.enable_prefix_caching,
            max_shared_tokens=rope.shareable_tokens,
            seed=config.seed,
            grammars=GrammarCompiler(vocabulary, max_seconds=config.max_grammar_seconds),
            work_cost=WorkCost.of_model(model, info.weight_bytes, info.kv_bytes_per_token),
        )
        return Loaded(engine, runner)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self._on_progress(name, _SHARES[name][0])
        start = time.perf_counter()
        yield
        self._phases[name] = time.perf_counter() - start

    def _tell(self, phase: str, done: float) -> None:
        low, high = _SHARES[phase]
        self._on_progress(phase, low + (high - low) * done)

    def _plan(self, model: ModelConfig, placement: Placement, activations: int | None = None) -> MemoryPlan:
        """`activations`: bytes measured, once the weights are there."""
        config = self._config
        if activations is None:
            self._memory = read_memory(placement.device, config.gpu_memory_utilization)
        demand = Demand(
            model=config.model,
            config=model,
            weight_bytes=weight_bytes(
                model,
                placement.bytes_per_weight,
                placement.product_bytes(model.kept_bytes),
                placement.head_bytes,
            ),
            element_bytes=placement.dtype.itemsize,
            kv_element_bytes=placement.kv_element_bytes,
            max_num_seqs=placement.max_num_seqs,
            max_num_batched_tokens=placement.max_num_batched_tokens,
            block_size=config.block_size,
            max_model_len=config.max_model_len,
            kv_cache_memory=config.kv_cache_memory,
            graphs=bool(placement.graphs),
            measured_activations=activations,
        )
        return plan_memory(demand, self._memory)

    def _profile(self, decoder: Decoder, placement: Placement, limit: int) -> int:
        try:
            return activation_bytes(
                decoder,
                max_tokens=placement.max_num_batched_tokens,
                max_num_seqs=placement.max_num_seqs,
                vocabulary=limit,
            )
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(
                f"A step of {placement.max_num_batched_tokens} tokens and {placement.max_num_seqs} sequences does not "
                f"fit beside {self._config.model}'s weights; lower --max-num-batched-tokens or --max-num-seqs."
            ) from error

    def _decoder(self, model: ModelConfig, placement: Placement) -> tuple[Decoder, list[Tensor] | None]:
        """The weights, and the scales that came with them where they are needed."""
        config = self._config
        source = open_weights(
            config.path,
            model,
            dummy=config.load_format == "dummy",
            dtype=placement.dtype,
            device=placement.device,
            seed=config.seed,
        )
        stored = source.kv_scales() if placement.fp8_cache else None
        try:
            decoder = build_decoder(
                model,
                source,
                dtype=placement.dtype,
                device=placement.device,
                make_linear=make_linears(placement, model, dummy=config.load_format == "dummy"),
                progress=lambda done: self._tell("weights", done),
            )
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(
                f"The GPU ran out of memory while {config.model} was loading; stop other programs that use it or lower "
                "--gpu-memory-utilization."
            ) from error
        return decoder, stored

    def _runner(
        self,
        model: ModelConfig,
        decoder: Decoder,
        placement: Placement,
        plan: MemoryPlan,
        limit: int,
        scales: KVScales | None,
    ) -> tuple[ModelRunner, RopeTable]:
        of_layers = None if scales is None else scales.of_layers
        kv = make_kv_cache(model, plan.num_blocks, plan.block_size, placement.dtype, placement.device, of_layers)
        rope = RopeTable(model, plan.max_model_len, placement.device)
        runner = ModelRunner(
            decoder,
            rope,
            kv,
            max_num_seqs=placement.max_num_seqs,
            max_num_batched_tokens=placement.max_num_batched_tokens,
            max_model_len=plan.max_model_len,
            token_id_limit=limit,
            eos_token_ids=model.eos_token_ids,
            # low-bit kernels have threads of their own, and torch's would spin on the same cores after each small op
            torch_threads=placement.cpu_threads if placement.weights == "dense" else 1,
            graphs=() if rope.is_dynamic else placement.graphs,
        )
        return runner, rope

    def _warm(self, runner: ModelRunner, placement: Placement, plan: MemoryPlan, limit: int) -> StepCost:
        on_gpu = placement.device.type == "cuda"
        warm_up = WarmUp(
            runner,
            num_blocks=plan.num_blocks,
            block_size=plan.block_size,
            max_num_seqs=placement.max_num_seqs,
            max_tokens=placement.max_num_batched_tokens,
            max_len=plan.max_model_len,
            token_id_limit=limit,
            on_gpu=on_gpu,
        )
        cost = StepCost.fit(warm_up.run(WARM_UP_SECONDS))
        return cost if on_gpu else cost.with_pairs_as_context()  # too short a time to run chunks over a long context

    def _info(
        self,
        model: ModelConfig,
        decoder: Decoder,
        placement: Placement,
        plan: MemoryPlan,
        limit: int,
        scales: KVScales | None,
    ) -> EngineInfo:
        return EngineInfo(
            model=self._config.model,
            architecture=model.architecture,
            device=str(placement.device),
            device_name=placement.device_name,
            dtype=str(placement.dtype).removeprefix("torch."),
            weights=describe_weights(decoder, placement),
            attention=_attention(placement),
            max_model_len=plan.max_model_len,
            vocab_size=model.vocab_size,
            token_id_limit=limit,
            bos_token_id=model.bos_token_id,
            eos_token_ids=model.eos_token_ids,
            default_sampling=model.default_sampling if self._config.generation_config == "auto" else {},
            block_size=plan.block_size,
            num_blocks=plan.num_blocks,
            max_num_seqs=placement.max_num_seqs,
            kv_bytes_per_token=kv_bytes_per_token(model, placement.kv_element_bytes),
            weight_bytes=decoder.weight_bytes,
            phases=self._phases,
            kv_dtype="" if scales is None else "FP8 (E4M3)",
            kv_note=self._kv_note(model, placement) if scales is None else scales.origin,
        )

    def _kv_note(self, model: ModelConfig, placement: Placement) -> str:
        if model.kv_scheme is None or self._config.kv_cache_dtype != "auto":
            return ""
        dtype = str(placement.dtype).removeprefix("torch.")
        return f"in {dtype}: the checkpoint's FP8 cache would be slow here, and is there with --kv-cache-dtype fp8"


def _attention(placement: Placement) -> str:
    if placement.device.type == "cuda" and placement.dtype.itemsize == 2 and has_triton():
        return "Triton over the paged cache; cuDNN for long fresh prompts"
    if placement.fp8_cache and placement.device.type == "cpu":
        return "torch reference, as FP8 keys and values have no compiled CPU kernel: slow over long contexts"
    if placement.device.type == "cpu" and placement.dtype == torch.float32 and cpu_kernels() is not None:
        return "compiled CPU kernel"
    return "torch reference"


def _check(config: EngineConfig) -> None:
    if config.block_size < 1:
        raise ConfigError("--block-size must be at least 1.")
    if config.max_model_len is not None and config.max_model_len < 1:
        raise ConfigError("--max-model-len must be at least 1.")
    if not 0 < config.gpu_memory_utilization <= 1:
        raise ConfigError("--gpu-memory-utilization must be above 0 and at most 1.")
    if config.max_step_ms is not None and config.max_step_ms <= 0:
        raise ConfigError("--max-step-ms must be above 0.")
