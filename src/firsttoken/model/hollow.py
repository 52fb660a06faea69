"""A decoder without numbers: its shapes and forms on the meta device, to find out what its ops would launch."""

from __future__ import annotations

import torch

from firsttoken.kernels.gpu.measured_product import operands
from firsttoken.kernels.linear import DenseLinear, GpuLinear, Norm
from firsttoken.kernels.quant_forms import QuantForm
from firsttoken.model.config import ModelConfig
from firsttoken.model.decoder import Decoder, DecoderLayer
from firsttoken.model.products import products_of

_META = torch.device("meta")


def hollow_decoder(config: ModelConfig, dtype: torch.dtype, form: QuantForm | None = None) -> Decoder:
    """One layer and both ends, as a GPU would hold them. `form` is what weights are rounded to at load."""
    made = {job.name: operands(job, _META, dtype, 1).weights[0] for job in products_of(config, [1], form)}

    def norm(size: int, before: GpuLinear | None = None) -> Norm:
        weight = torch.empty(size, dtype=dtype, device=_META)
        return Norm(weight, config.rms_norm_eps, folded=isinstance(before, DenseLinear))

    layer = DecoderLayer(
        input_norm=norm(config.hidden_size, made["qkv"]),
        qkv=made["qkv"],
        q_norm=norm(config.head_dim) if config.qk_norm else None,
        k_norm=norm(config.head_dim) if config.qk_norm else None,
        o=made["o"],
        post_norm=norm(config.hidden_size, made["gate and up"]),
        gate_up=made["gate and up"],
        down=made["down"],
    )
    table = torch.empty(config.vocab_size, config.hidden_size, dtype=dtype, device=_META)
    return Decoder(config, dtype, table, (layer,), norm(config.hidden_size), DenseLinear(table))
