"""From a path to a Decoder on its device: layers are read and built by several threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firsttoken.kernels.gpu import on_gpu
from firsttoken.kernels.linear import DenseLinear, Linear, Norm
from firsttoken.model.config import ModelConfig
from firsttoken.model.decoder import Decoder, DecoderLayer
from firsttoken.model.dummy import DummyWeights
from firsttoken.model.quant_linears import QuantLinears
from firsttoken.model.tensor_names import EMBEDDING, FINAL_NORM, HEAD
from firsttoken.model.weights import DenseLinears, LinearFactory, WeightSource, dense


def open_weights(
    path: str | Path,
    config: ModelConfig,
    *,
    dummy: bool = False,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> WeightSource:
    """The weights at `path` (a folder or a .gguf file), or random ones of the same shapes. Raises ModelError.

    `dtype`, `device` and `seed` are those of random weights.
    """
    if dummy:
        return DummyWeights(config, dtype, torch.device(device), seed)
    path = Path(path)
    if path.is_file():
        from firsttoken.model.gguf import GGUFWeights  # each format's package is imported only where it is read

        return GGUFWeights(path, config)
    from firsttoken.model.checkpoint import Checkpoint

    return Checkpoint(path, config)


def build_decoder(
    config: ModelConfig,
    source: WeightSource,
    *,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    make_linear: LinearFactory | None = None,
    progress: Callable[[float], None] | None = None,
    threads: int | None = None,
) -> Decoder:
    """Reads every tensor of `source` and makes the ops' weights of it.

    `dtype` is that of activations, norms and (by default) linears; `make_linear` makes other forms of linears.
    `progress` gets the fraction done, from this thread.
    """
    device = torch.device(device)
    builder = _Builder(config, source, dtype, device, make_linear or DenseLinears(dtype, device))
    if threads is None:  # a GPU is fed by as many readers as the page cache can serve; a CPU's copies use all cores
        threads = min(8, os.cpu_count() or 1) if device.type == "cuda" else min(2, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads, thread_name_prefix="weights") as pool:
        ends = pool.submit(builder.embedding_and_head)  # the largest piece starts first
        layers = [pool.submit(builder.layer, i) for i in range(config.num_layers)]
        try:
            pieces: list[Future[Any]] = [ends, *layers]
            for done, future in enumerate(as_completed(pieces), start=1):
                future.result()
                if progress is not None:
                    progress(done / len(pieces))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    embedding, head = ends.result()
    return Decoder(
        config=config,
        dtype=dtype,
        embedding=embedding,
        layers=tuple(future.result() for future in layers),
        final_norm=builder.norm(FINAL_NORM),
        head=head,
    )


def fold_norm(norm: Norm, linear: DenseLinear) -> Norm:
    """Multiplies the norm's weight into the product's, in place, and returns the norm that is left: for GPUs.

    The matrix-vector kernel is bound by instructions as much as by bytes, and this takes a load and a product off each
    activation. The weight is rounded once more; in exchange the normalised activations are not rounded twice.
    """
    for rows in linear.weight.split(4096):  # float32 copies of a few rows at a time
        rows.copy_(rows.to(torch.float32) * norm.weight.to(torch.float32))
    return Norm(torch.ones_like(norm.weight), norm.eps, folded=True)


class _Builder:
    def __init__(
        self,
        config: ModelConfig,
        source: WeightSource,
        dtype: torch.dtype,
        device: torch.device,
        make_linear: LinearFactory,
    ) -> None:
        self.config, self.source, self.make_linear = config, source, make_linear
        self.dtype, self.device = dtype, device

    def layer(self, i: int) -> DecoderLayer:
        config, layer = self.config, f"model.layers.{i}"
        attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"
        parts = [f"{attention}.{part}_proj" for part in "qkv"]
        qkv = self.linear(f"{layer}.qkv", parts, config.qkv_bias)
        gate_up = self.linear(f"{layer}.gate_up", [f"{mlp}.gate_proj", f"{mlp}.up_proj"], config.mlp_bias)
        return DecoderLayer(
            input_norm=self.norm_before(qkv, f"{layer}.input_layernorm.weight"),
            qkv=qkv,
            q_norm=self.norm(f"{attention}.q_norm.weight") if config.qk_norm else None,
            k_norm=self.norm(f"{attention}.k_norm.weight") if config.qk_norm else None,
            o=self.linear(f"{layer}.o", [f"{attention}.o_proj"], config.o_bias),
            post_norm=self.norm_before(gate_up, f"{layer}.post_attention_layernorm.weight"),
            gate_up=gate_up,
            down=self.linear(f"{layer}.down", [f"{mlp}.down_proj"], config.mlp_bias),
        )

    def linear(self, name: str, modules: Sequence[str], has_bias: bool) -> Linear:
        parts = [self.source.take(f"{module}.weight") for module in modules]
        bias = torch.cat([self.source.take(f"{m}.bias").dequantize() for m in modules]) if has_bias else None
        return self.make_linear(name, parts, bias)

    def norm_before(self, linear: Linear, name: str) -> Norm:
        norm = self.norm(name)
        return fold_norm(norm, linear) if isinstance(linear, DenseLinear) and on_gpu(linear.weight) else norm

    def norm(self, name: str) -> Norm:
        weight = dense(self.source.take(name)).to(self.device, self.dtype, copy=True)
        return Norm(weight, self.config.rms_norm_eps)

    def embedding_and_head(self) -> tuple[Tensor, Linear]:
        tied = self.config.tie_word_embeddings
        raw = self.source.take(EMBEDDING)
        head = self.make_linear("lm_head", [raw if tied else self.source.take(HEAD)])
        make = self.make_linear
        changed = isinstance(make, QuantLinears) and make.widens and make.head is not None  # rounded, and dense again
        if tied and isinstance(head, DenseLinear) and not changed:
            return head.weight, head
        # a CPU keeps the file's own type: a lookup reads a row, and widens it then
        table = dense(raw)
        return (table.to(self.dtype) if self.device.type == "cuda" else table).to(self.device), head
