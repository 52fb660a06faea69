"""The compiled CPU kernels as Python calls: one C call an op, the interpreter lock released meanwhile."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from firsttoken.errors import OutOfMemory
from firsttoken.kernels.cpu_build import BuildError, StoreError, build
from firsttoken.kernels.cpu_memory import WeightArena

if TYPE_CHECKING:
    from firsttoken.kernels.cpu_forms import CpuLinear
    from firsttoken.kernels.linear import Norm
    from firsttoken.kernels.plan import AttentionPlan, KVLayer, Rope

_ATTENTION = struct.Struct("13P7q3f4x")  # ft_attention in cpu/attention.h
_MAX_HEAD_DIM = 256

_POINTER, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_SIGNATURES = {
    "ft_norm_linear": (_POINTER, _POINTER, _LONG, _POINTER, _FLOAT, _POINTER),
    "ft_norm_linear_swiglu": (_POINTER, _POINTER, _LONG, _POINTER, _FLOAT, _POINTER),
    "ft_linear_add": (_POINTER, _POINTER, _LONG, _POINTER, _POINTER),
    "ft_attend": (_POINTER,),
    "ft_rows_of": (_POINTER, _POINTER, _LONG, _POINTER),
    "ft_pack_gguf": (_POINTER, _LONG, _LONG, _LONG, _POINTER, _LONG),
    "ft_pack_float": (_POINTER, _LONG, _LONG, _POINTER),
    "ft_unpack": (_POINTER, _POINTER),
    "ft_set_threads": (ctypes.c_int,),
}
_SILENT = {"ft_pack_float", "ft_unpack", "ft_set_threads"}  # these cannot fail


class CpuKernels:
    """One compiled library. Every method takes and gives float32 tensors on the CPU."""

    def __init__(self, library: Path, threads: int | None = None) -> None:
        """Loads `library` (see cpu_build.build); `threads` defaults to the cores that this process may use."""
        self.library = library
        self.arena = WeightArena()
        self._c = ctypes.CDLL(str(library))
        for name, arguments in _SIGNATURES.items():
            function = getattr(self._c, name)
            function.argtypes = arguments
            function.restype = None if name in _SILENT else ctypes.c_int
        self._norm_linear = self._c.ft_norm_linear
        self._swiglu = self._c.ft_norm_linear_swiglu
        self._linear_add = self._c.ft_linear_add
        self._attend = self._c.ft_attend
        self.set_threads(threads or usable_cores())

    def set_threads(self, threads: int) -> None:
        """How many threads share an op, the caller's included."""
        self.threads = threads
        self._c.ft_set_threads(threads)

    def norm_linear(self, x: Tensor, norm: Norm, weight: CpuLinear) -> Tensor:
        """RMSNorm, the product and the bias: [tokens, in] -> [tokens, out]."""
        rows, scale = _plain(x), _plain(norm.weight)
        out = torch.empty(rows.shape[0], weight.out_features)
        _check(
            self._norm_linear(weight.spec, rows.data_ptr(), rows.shape[0], scale.data_ptr(), norm.eps, out.data_ptr())
        )
        return out

    def norm_linear_swiglu(self, x: Tensor, norm: Norm, weight: CpuLinear) -> Tensor:
        """RMSNorm, the gate and up products, silu(gate) * up: [tokens, in] -> [tokens, inter]."""
        inter = weight.out_features // 2
        if inter % 16:  # gate and up rows share a block of the packed weight
            gate, up = self.norm_linear(x, norm, weight).chunk(2, dim=-1)
            return torch.nn.functional.silu(gate) * up
        rows, scale = _plain(x), _plain(norm.weight)
        out = torch.empty(rows.shape[0], inter)
        _check(self._swiglu(weight.spec, rows.data_ptr(), rows.shape[0], scale.data_ptr(), norm.eps, out.data_ptr()))
        return out

    def linear_add(self, x: Tensor, weight: CpuLinear, residual: Tensor) -> Tensor:
        """residual + x W^T + bias, written into `residual` where its layout allows: [tokens, in] -> [tokens, out]."""
        rows, out = _plain(x), _plain(residual)
        _check(self._linear_add(weight.spec, rows.data_ptr(), rows.shape[0], out.data_ptr(), out.data_ptr()))
        return out

    def rows(self, weight: CpuLinear, ids: Tensor) -> Tensor:
        """The weight's rows of `ids` [n] int64 as float32 [n, in]: the embedding of a table that is also the head."""
        ids = ids.contiguous()
        out = torch.empty(ids.shape[0], weight.in_features)
        outside = self._c.ft_rows_of(weight.spec, ids.data_ptr(), ids.shape[0], out.data_ptr())
        assert not outside, "a token id is outside of the vocabulary"
        return out

    def can_attend(self, qkv: Tensor, kv: KVLayer) -> bool:
        """Whether `attention` serves these shapes and dtypes."""
        plain = kv.k.dtype == qkv.dtype == torch.float32 and kv.k.is_contiguous() and kv.v.is_contiguous()
        return plain and kv.head_dim % 16 == 0 and kv.head_dim <= _MAX_HEAD_DIM

    def attention(
        self, qkv: Tensor, q_norm: Norm | None, k_norm: Norm | None, rope: Rope, kv: KVLayer, plan: AttentionPlan
    ) -> Tensor:
        """QK-norm, RoPE, KV write and causal paged attention; the meaning is reference.attention's."""
        rows = qkv.contiguous()
        _, kv_heads, block_size, dim = kv.k.shape
        q_weight = None if q_norm is None else _plain(q_norm.weight)
        k_weight = None if k_norm is None else _plain(k_norm.weight)
        padded = plan.num_tokens < qkv.shape[0]
        out = (torch.zeros if padded else torch.empty)(qkv.shape[0], plan.num_heads * dim)
        call = _ATTENTION.pack(
            rows.data_ptr(),
            0 if q_weight is None else q_weight.data_ptr(),
            0 if k_weight is None else k_weight.data_ptr(),
            rope.cos.data_ptr(),
            rope.sin.data_ptr(),
            plan.rope_rows.data_ptr(),
            plan.slots.data_ptr(),
            plan.query_start.data_ptr(),
            plan.context_lens.data_ptr(),
            plan.block_tables.data_ptr(),
            kv.k.data_ptr(),
            kv.v.data_ptr(),
            out.data_ptr(),
            plan.num_tokens,
            plan.num_rows,
            plan.num_heads,
            kv_heads,
            dim,
            block_size,
            plan.block_tables.stride(0),
            0.0 if q_norm is None else q_norm.eps,
            0.0 if k_norm is None else k_norm.eps,
            plan.scale,
        )
        _check(self._attend(call))
        return out

    def pack_gguf(self, spec: bytes, first: int, rows: int, ggml_type: int, blocks: int, stride: int) -> None:
        """Blocks at address `blocks`, `stride` bytes a row, become rows `first`... of the weight of `spec`."""
        wrong = self._c.ft_pack_gguf(spec, first, rows, ggml_type, blocks, stride)
        assert not wrong, f"ggml type {ggml_type} does not fit this form"

    def pack_float(self, spec: bytes, first: int, weight: Tensor) -> None:
        """Rounds float32 rows [n, in] into rows `first`... of the weight of `spec`."""
        weight = _plain(weight)
        self._c.ft_pack_float(spec, first, weight.shape[0], weight.data_ptr())

    def unpack(self, weight: CpuLinear) -> Tensor:
        """The weight as float32 [out, in]."""
        out = torch.empty(weight.out_features, weight.in_features)
        self._c.ft_unpack(weight.spec, out.data_ptr())
        return out


def usable_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def cpu_kernels() -> CpuKernels | None:
    """This machine's kernels, compiled on first use; None where that is not possible (`why_no_kernels` says why)."""
    return _load()[0]


@functools.cache
def why_no_kernels() -> str | None:
    """One sentence for the user where the CPU kernels are missing, else None."""
    return _load()[1]


@functools.cache
def _load() -> tuple[CpuKernels | None, str | None]:
    return load_kernels(os.environ)


def load_kernels(environ: Mapping[str, str]) -> tuple[CpuKernels | None, str | None]:
    """The kernels, or one sentence that says why there are none. FIRSTTOKEN_CPU_ARCH chooses the instruction set."""
    arch = environ.get("FIRSTTOKEN_CPU_ARCH", "native")
    try:
        try:
            return CpuKernels(build(arch, environ=environ)), None
        except StoreError:  # a start that compiles them each time, which takes two seconds, beats one without
            with tempfile.TemporaryDirectory(prefix="firsttoken-") as folder:  # a loaded library needs no file
                return CpuKernels(build(arch, environ=environ, folder=Path(folder))), None
    except BuildError as error:
        return None, str(error)
    except OSError as error:
        return None, f"The compiled CPU kernels cannot be loaded ({error}); delete the file and start again."


def _plain(x: Tensor) -> Tensor:
    """The tensor itself where it is contiguous float32."""
    return x if x.dtype is torch.float32 and x.is_contiguous() else x.to(torch.float32).contiguous()


def _check(code: int) -> None:
    if code == 1:
        raise OutOfMemory("There is no memory left for one step's activations; lower --max-num-batched-tokens.")
    assert code == 0, f"CPU kernel error {code}"
