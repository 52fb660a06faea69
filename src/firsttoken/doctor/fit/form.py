"""The forms that `serve` gives a model's weights and its KV cache: flags and bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from firsttoken.errors import ConfigError
from firsttoken.model import cost
from firsttoken.model.config import ModelConfig

Flags = dict[str, str]

_CPU_WEIGHT = {"int8": 1.0625, "int4": 0.625}  # bytes, scales included
FIRST_BFLOAT16 = (8, 0)  # the compute capability; older cards run float16


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Weights, activations and keys and values in bytes an element."""

    name: str  # for the reader
    activation: int
    weight: float  # of every weight that is not a layer's product, scales included
    product: float | None = None  # of the layers' products, where they differ
    kv: int
    file_read: int | None = None  # bytes that a step reads, where the file's own bits are kept
    flags: Flags = field(default_factory=dict)  # of serve

    def held(self, config: ModelConfig) -> int:
        """Bytes of weights in memory."""
        return cost.weight_bytes(config, self.weight) + self._difference(config)

    def read(self, config: ModelConfig) -> int:
        """Bytes of weights that a decode step reads."""
        if self.file_read is not None:
            return self.file_read
        return cost.decode_weight_bytes(config, self.weight) + self._difference(config)

    def kv_per_token(self, config: ModelConfig) -> int:
        return cost.kv_bytes_per_token(config, self.kv)

    def _difference(self, config: ModelConfig) -> int:
        """Bytes that the layers' products take more than other weights (mostly less)."""
        return 0 if self.product is None else round(cost.layer_flops(config) / 2 * (self.product - self.weight))


def dense_gpu(dtype: str, capability: tuple[int, int] | None, model_dtype: str) -> Form:
    """What `serve --dtype` gives a GPU."""
    if dtype == "auto":
        old = capability is not None and capability < FIRST_BFLOAT16
        dtype, flags = "float16" if old or model_dtype == "float16" else "bfloat16", {}
    else:
        flags = {"dtype": dtype}
    size = 4 if dtype == "float32" else 2
    return Form(name=dtype, activation=size, weight=size, kv=size, flags=flags)


def on_cpu(dtype: str, quantization: str) -> Form:
    """What `serve` gives a CPU whose kernels could be compiled. Raises ConfigError."""
    if quantization in _CPU_WEIGHT:
        if dtype not in ("auto", "float32"):
            raise ConfigError(f"--quantization {quantization} computes in float32; leave --dtype out.")
        name, weight = f"{quantization}, computed in float32", _CPU_WEIGHT[quantization]
        return Form(name=name, activation=4, weight=weight, kv=4, flags={"quantization": quantization})
    if dtype == "auto" and quantization == "auto":
        return Form(name="int8, computed in float32", activation=4, weight=_CPU_WEIGHT["int8"], kv=4)
    flags = {name: value for name, value in (("dtype", dtype), ("quantization", quantization)) if value != "auto"}
    size = 4 if dtype in ("auto", "float32") else 2
    return Form(name="float32" if dtype == "auto" else dtype, activation=size, weight=size, kv=size, flags=flags)
