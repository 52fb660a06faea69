"""The forms that `serve` gives a model's weights and its KV cache: flags and bytes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from firsttoken.errors import ConfigError
from firsttoken.model import cost
from firsttoken.model.config import ModelConfig
from firsttoken.model.kv_scheme import wants_fp8

Flags = dict[str, str]

_FIRST_BFLOAT16 = (8, 0)  # the compute capability; older cards run float16
_ROUNDED = ("fp8", "int8", "int4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Weights, activations and keys and values in bytes an element."""

    name: str  # for the reader
    activation: int
    weight: float  # of every weight that is not a layer's product, scales included
    product: float | None = None  # of the layers' products, where they differ
    head: float | None = None  # of the head, likewise
    packed: str = ""  # "fp8", "int8" or "int4": what a GPU keeps the products' weights in, where that is not bfloat16
    kv: int
    file_read: int | None = None  # bytes that a step reads, where a CPU keeps the file's own bits
    flags: Flags = field(default_factory=dict)  # of serve

    def held(self, config: ModelConfig) -> int:
        """Bytes of weights in memory."""
        return cost.weight_bytes(config, self.weight, self.product, self.head)

    def read(self, config: ModelConfig) -> int:
        """Bytes of weights that a decode step reads."""
        if self.file_read is not None:
            return self.file_read
        return cost.decode_weight_bytes(config, self.weight, self.product, self.head)

    def kv_per_token(self, config: ModelConfig) -> int:
        """Bytes of keys and values."""
        return cost.kv_bytes_per_token(config, self.kv)


def on_gpu(dtype: str, quantization: str, config: ModelConfig, capability: tuple[int, int] | None) -> Form:
    """What `serve` gives a GPU. Raises ConfigError where it would refuse."""
    flags = _flags(dtype, quantization)
    if dtype == "auto":
        old = capability is not None and capability < _FIRST_BFLOAT16
        dtype = "float16" if old or config.dtype == "float16" else "bfloat16"
    size = 4 if dtype == "float32" else 2
    product = config.kept_bytes if quantization == "auto" and size == 2 else None
    name = dtype if product is None else f"products in the file's own bits, else {dtype}"
    if quantization in _ROUNDED:
        if size == 4:
            raise ConfigError(
                f"--quantization {quantization} computes in bfloat16 or float16 on a GPU, not in float32."
            )
        if config.quantization is not None:
            raise ConfigError(f"The model is quantised already, so --quantization {quantization} would round it twice.")
        also = ", int8 head" if quantization in cost.GPU_HEAD else ""
        name, product = f"{quantization} products{also}, else {dtype}", cost.GPU_PRODUCT[quantization]
    kept = "" if product is None or config.quantization is None else config.quantization.form
    packed = quantization if quantization in _ROUNDED else kept
    return Form(
        name=name,
        activation=size,
        weight=size,
        product=product,
        head=cost.GPU_HEAD.get(quantization),
        packed=packed,
        kv=size,
        flags=flags,
    )


def on_cpu(dtype: str, quantization: str) -> Form:
    """What `serve` gives a CPU whose kernels could be compiled. Raises ConfigError where it would refuse."""
    flags = _flags(dtype, quantization)
    if quantization in _ROUNDED and dtype == "float32":  # to judge a GPU's form
        return Form(name=f"float32, from {quantization}", activation=4, weight=4, kv=4, flags=flags)
    if quantization == "fp8":
        raise ConfigError("--quantization fp8 runs on a GPU only; on a CPU use int8 or int4.")
    if quantization in _ROUNDED and dtype != "auto":
        raise ConfigError(f"--quantization {quantization} computes in float32; leave --dtype out.")
    if quantization in _ROUNDED or (dtype, quantization) == ("auto", "auto"):
        form = "int8" if quantization == "auto" else quantization
        return Form(name=f"{form}, computed in float32", activation=4, weight=cost.CPU_WEIGHT[form], kv=4, flags=flags)
    size = 4 if dtype in ("auto", "float32") else 2
    return Form(name="float32" if dtype == "auto" else dtype, activation=size, weight=size, kv=size, flags=flags)


def with_kv(form: Form, kv_cache_dtype: str, config: ModelConfig, *, gpu: bool) -> Form:
    """The form with the KV cache that `serve --kv-cache-dtype` gives it. Raises ConfigError where it would refuse."""
    asked = {} if kv_cache_dtype == "auto" else {"kv-cache-dtype": kv_cache_dtype}
    form = replace(form, flags=form.flags | asked)
    if not wants_fp8(kv_cache_dtype, config.kv_scheme, kernels=gpu and form.activation == 2):
        return form
    return replace(form, name=f"{form.name}; FP8 keys and values", kv=1)


def fewer_bits(form: Form, config: ModelConfig, capability: tuple[int, int] | None, *, gpu: bool) -> tuple[Form, ...]:
    """Forms with fewer bytes than `form` that the same `serve` takes, the most exact first.

    FP8 keys and values are suggested neither for a CPU, which has no kernel for them, nor where the model's own scheme
    forbids them.
    """
    dtype, kv = form.flags.get("dtype", "auto"), form.flags.get("kv-cache-dtype", "auto")
    if form.activation == 4 if gpu else dtype not in ("auto", "float32"):
        return ()
    rounded: list[Form] = []
    if config.quantization is None and not (gpu and config.kept_bytes is not None):
        # On a CPU without the dtype: beside float32 rounding is for judging alone
        made = [
            on_gpu(dtype, one, config, capability) if gpu else on_cpu("auto", one) for one in ("fp8", "int4")[not gpu :]
        ]
        rounded = [with_kv(one, kv, config, gpu=gpu) for one in made if one.held(config) < form.held(config)]
    refused = config.kv_scheme is not None and config.kv_scheme.objection
    if not gpu or form.kv == 1 or refused:
        return tuple(rounded)
    pairs = [(one, with_kv(one, "fp8", config, gpu=True)) for one in (form, *rounded)]
    return tuple(one for pair in pairs for one in pair)[1:]


def _flags(dtype: str, quantization: str) -> Flags:
    return {name: value for name, value in (("dtype", dtype), ("quantization", quantization)) if value != "auto"}
