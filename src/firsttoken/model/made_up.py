"""Decoders of a config alone: of random weights, or hollow ones, to find out what ops would launch."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from firsttoken.kernels.gpu.candidates import Job
from firsttoken.kernels.gpu.launch import DENSE
from firsttoken.kernels.gpu.measured_product import operands
from firsttoken.kernels.linear import DenseLinear, GpuLinear, Norm
from firsttoken.kernels.quant_forms import QuantForm
from firsttoken.model.config import ModelConfig
from firsttoken.model.decoder import Decoder, DecoderLayer
from firsttoken.model.products import products_of


def hollow_decoder(config: ModelConfig, dtype: torch.dtype, form: QuantForm | None = None) -> Decoder:
    """A layer of each kind and both ends, without numbers, as a GPU would hold them."""
    return random_decoder(config, dtype, torch.device("meta"), form)


def random_decoder(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, form: QuantForm | None = None, layers: int = 1
) -> Decoder:
    """As a GPU holds it. `form` is what weights are rounded to at load.

    Of a GGUF file's kinds of layers each comes once, however few `layers` are, and then the commonest.
    """
    count = max(len(config.kept_kinds), 1)
    of_kinds = [{job.name: job for job in products_of(config, [1], form, kind)} for kind in range(count)]

    def made(job: Job) -> GpuLinear:
        return operands(job, device, dtype, 1).weights[0]

    def norm(size: int, before: GpuLinear | None = None) -> Norm:
        weight = torch.ones(size, dtype=dtype, device=device)
        return Norm(weight, config.rms_norm_eps, folded=isinstance(before, DenseLinear))

    def layer(jobs: Mapping[str, Job]) -> DecoderLayer:
        qkv, gate_up = made(jobs["qkv"]), made(jobs["gate and up"])
        return DecoderLayer(
            input_norm=norm(config.hidden_size, qkv),
            qkv=qkv,
            q_norm=norm(config.head_dim) if config.qk_norm else None,
            k_norm=norm(config.head_dim) if config.qk_norm else None,
            o=made(jobs["o"]),
            post_norm=norm(config.hidden_size, gate_up),
            gate_up=gate_up,
            down=made(jobs["down"]),
        )

    ends = Job(name="head", op="norm_linear", n=config.vocab_size, k=config.hidden_size, rows=1)
    table = made(ends)
    assert isinstance(table, DenseLinear)
    head = of_kinds[0].get("head", ends)
    every = tuple(layer(jobs) for jobs in [*of_kinds, *of_kinds[:1] * (layers - count)])
    last = table if head.weight == DENSE else made(head)
    return Decoder(config, dtype, table.weight, every, norm(config.hidden_size), last)
