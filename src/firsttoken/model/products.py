"""The products that a decode step of a model runs, as the kernels' launch search wants them."""

from __future__ import annotations

from collections.abc import Sequence

from firsttoken.kernels.gpu.candidates import Job
from firsttoken.model.config import ModelConfig


def products_of(config: ModelConfig, rows: Sequence[int]) -> list[Job]:
    """A layer's four products and the head, each at every number of rows. Raises nothing: any config has them."""
    c = config
    qkv = c.q_size + 2 * c.kv_size
    found: list[Job] = []
    for count in rows:
        found += [
            Job(name="qkv", op="norm_linear", n=qkv, k=c.hidden_size, rows=count, bias=c.qkv_bias),
            Job(name="o", op="linear_add", n=c.hidden_size, k=c.q_size, rows=count, bias=c.o_bias),
            Job(
                name="gate and up",
                op="norm_linear_swiglu",
                n=c.intermediate_size,
                k=c.hidden_size,
                rows=count,
                bias=c.mlp_bias,
            ),
            Job(name="down", op="linear_add", n=c.hidden_size, k=c.intermediate_size, rows=count, bias=c.mlp_bias),
            Job(name="head", op="norm_linear", n=c.vocab_size, k=c.hidden_size, rows=count, float_out=True),
        ]
    return found
