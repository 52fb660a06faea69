"""Where the model runs and in which precision: the defaults that depend on the machine, resolved once."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from firsttoken.config import EngineConfig
from firsttoken.engine.gpu_needs import why_no_cuda, why_no_launchers
from firsttoken.engine.step_shape import DECODE_BUCKETS
from firsttoken.errors import ConfigError
from firsttoken.kernels.gpu import has_triton
from firsttoken.kernels.quant_forms import QUANT_FORMS, QuantForm
from firsttoken.machine.gpu import read_gpus
from firsttoken.machine.host import read_host
from firsttoken.model.cost import CPU_WEIGHT, GPU_HEAD, GPU_PRODUCT
from firsttoken.model.kv_scheme import KVScheme, wants_fp8
from firsttoken.model.memory_plan import DeviceMemory, batch_limits

# keep: quantised weights that the kernels can multiply stay in their bits; a CPU rounds everything else to int8
WeightForm = Literal["dense", "keep", "fp8", "int8", "int4"]

MAX_STEP_MS = 55.0  # on a GPU: streams beside a long prompt stay fluent, and the prompt loses a few per cent
CPU_MAX_STEP_MS = 200.0  # where decode steps take tens of milliseconds, less would leave the prompt next to nothing

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What a launch settled on."""

    device: torch.device
    device_name: str
    dtype: torch.dtype  # of activations
    fp8_cache: bool = False  # the KV cache holds E4M3 numbers, else the activations' dtype
    weights: WeightForm
    why: str  # which precision runs, and the reason; for low-bit weights what goes with them
    judged: QuantForm | None = None  # dense weights that were first rounded to this form of a GPU's
    cpu_threads: int | None  # None on a GPU
    max_num_seqs: int
    max_num_batched_tokens: int
    max_step_ms: float | None  # of a step that decodes and prefills
    graphs: tuple[int, ...]  # rows of decode steps that run as CUDA graphs, as short prompts do then; (): nothing does

    @property
    def kv_element_bytes(self) -> int:
        return 1 if self.fp8_cache else self.dtype.itemsize

    @property
    def bytes_per_weight(self) -> float:
        dense = float(self.dtype.itemsize)
        return dense if self.device.type == "cuda" else CPU_WEIGHT.get(self.weights, dense)

    def product_bytes(self, kept: float | None) -> float | None:
        """Bytes a weight of the layers' products where they have a form of their own; `kept` are the file's."""
        if self.device.type != "cuda":
            return None
        return kept if self.weights == "keep" else GPU_PRODUCT.get(self.weights)

    @property
    def head_bytes(self) -> float | None:
        """Bytes a weight of a head that is rounded beside the layers; None where it is like the other weights."""
        return GPU_HEAD.get(self.weights) if self.device.type == "cuda" else None


def place(
    config: EngineConfig,
    model_dtype: str,
    no_kernels: Callable[[], str | None],
    kv_scheme: KVScheme | None = None,
) -> Placement:
    """Resolves the engine's device, precision and batch limits.

    `model_dtype` is the checkpoint's own; `no_kernels` says why the low-bit CPU kernels are missing, or None where they
    are there; `kv_scheme` is what it declares of its KV cache. Raises ConfigError.
    """
    device = _device(config.device)
    judged: QuantForm | None = None
    if device.type == "cuda":
        has_bfloat16: bool = torch.cuda.is_bf16_supported(including_emulation=False)
        chosen = gpu_dtype(config, model_dtype, has_bfloat16)
        dtype, weights, why = gpu_precision(config, chosen, has_kernels=has_triton())
    elif config.dtype == "float32" and (judged := QUANT_FORMS.get(config.quantization)) is not None:
        dtype, weights = torch.float32, "dense"
        why = f"float32 of weights rounded as --quantization {judged} does on a GPU: to judge them, not for speed"
    else:
        dtype, weights, why = _cpu_precision(config, no_kernels)
    seqs, tokens = _batch_limits(config, device)
    fast = device.type == "cuda" and dtype.itemsize == 2 and has_triton()
    return Placement(
        device=device,
        device_name=_name(device),
        dtype=dtype,
        fp8_cache=wants_fp8(config.kv_cache_dtype, kv_scheme, kernels=fast),
        weights=weights,
        why=why,
        judged=judged,
        cpu_threads=_threads(config) if device.type == "cpu" else None,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        max_step_ms=config.max_step_ms or (MAX_STEP_MS if device.type == "cuda" else CPU_MAX_STEP_MS),
        graphs=graph_sizes(config) if fast else (),
    )


def graph_sizes(config: EngineConfig) -> tuple[int, ...]:
    """The rows of decode steps that get graphs on a GPU; none without graphs. Raises ConfigError."""
    sizes = config.cudagraph_capture_sizes
    if sizes is not None and (not sizes or min(sizes) < 1):
        raise ConfigError(
            "--cudagraph-capture-sizes must be numbers of rows from 1 up; --enforce-eager turns graphs off."
        )
    return () if config.enforce_eager else sizes or DECODE_BUCKETS


def read_memory(device: torch.device, utilization: float) -> DeviceMemory:
    """What the device has now."""
    if device.type == "cpu":
        host = read_host()
        return DeviceMemory(kind="cpu", total=host.memory_total, free=host.memory_available)
    free, total = torch.cuda.mem_get_info(device)
    return DeviceMemory(kind="cuda", total=total, free=free, utilization=utilization)


def _device(asked: str) -> torch.device:
    if asked == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        if has_triton() and (reason := why_no_launchers()) is not None:
            raise ConfigError(reason)
        return torch.device("cuda", torch.cuda.current_device())
    if (reason := why_no_cuda(read_gpus(), torch.__version__, torch.version.cuda)) is not None:
        raise ConfigError(reason)
    if asked == "cuda":
        raise ConfigError(
            "No CUDA GPU can be used here; install a CUDA build of torch and the driver, or --device cpu."
        )
    return torch.device("cpu")


def gpu_precision(
    config: EngineConfig, chosen: tuple[torch.dtype, str], *, has_kernels: bool
) -> tuple[torch.dtype, WeightForm, str]:
    """The form of the weights on a GPU that computes in `chosen`, a dtype and why. Raises ConfigError."""
    (dtype, why), asked = chosen, config.quantization
    can_run = dtype.itemsize == 2 and has_kernels
    if asked in ("fp8", "int8", "int4"):
        if not has_kernels:
            raise ConfigError(f"--quantization {asked} needs Triton on a GPU, which is not installed; leave it out.")
        if not can_run:
            raise ConfigError(
                f"--quantization {asked} computes in bfloat16 or float16 on a GPU, not in float32; --device cpu beside "
                "it judges its answers."
            )
        return dtype, asked, f"rounded at load, as --quantization {asked} says; {why}"
    return dtype, "keep" if asked == "auto" and can_run else "dense", why


def gpu_dtype(config: EngineConfig, model_dtype: str, has_bfloat16: bool) -> tuple[torch.dtype, str]:
    """Of activations on a GPU, and why."""
    if config.dtype != "auto":
        return _DTYPES[config.dtype], f"{config.dtype}, as --dtype says"
    if model_dtype != "float16" and has_bfloat16:
        return torch.bfloat16, "bfloat16, which this GPU is fast in"
    return torch.float16, "float16, since the model was saved in it or this GPU has no bfloat16"


def _cpu_precision(config: EngineConfig, no_kernels: Callable[[], str | None]) -> tuple[torch.dtype, WeightForm, str]:
    asked = config.quantization
    if asked == "fp8":
        raise ConfigError(
            "--quantization fp8 runs on a GPU only; on a CPU use int8 (as exact) or int4, or --dtype float32 beside it "
            "to judge its answers."
        )
    if asked in ("int8", "int4"):
        if config.dtype != "auto":
            raise ConfigError(f"--quantization {asked} computes in float32; leave --dtype out.")
        if (reason := no_kernels()) is not None:
            raise ConfigError(f"--quantization {asked} cannot run here. {reason}")
        return torch.float32, asked, f"int8 activations by row, as --quantization {asked} says"
    if asked == "auto" and config.dtype == "auto":
        if (reason := no_kernels()) is not None:
            return torch.float32, "dense", f"float32. {reason}"
        return (
            torch.float32,
            "keep",
            "int8 activations by row, fastest here; --dtype float32 is exact",
        )
    if config.dtype in ("auto", "float32"):
        return torch.float32, "dense", "float32, the exact mode"
    return _DTYPES[config.dtype], "dense", f"{config.dtype}, as --dtype says; few CPUs are fast in it"


def _threads(config: EngineConfig) -> int:
    if config.cpu_threads is not None:
        if config.cpu_threads < 1:
            raise ConfigError("--cpu-threads must be at least 1.")
        return config.cpu_threads
    return min(read_host().cores, torch.get_num_threads())  # torch counts real cores, the host what we may use


def _batch_limits(config: EngineConfig, device: torch.device) -> tuple[int, int]:
    """Sequences and tokens a step."""
    for flag, value in (
        ("--max-num-seqs", config.max_num_seqs),
        ("--max-num-batched-tokens", config.max_num_batched_tokens),
    ):
        if value is not None and value < 1:
            raise ConfigError(f"{flag} must be at least 1.")
    total = 0 if device.type == "cpu" else torch.cuda.get_device_properties(device).total_memory
    return batch_limits(device.type, total, config.max_num_seqs, config.max_num_batched_tokens)


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
