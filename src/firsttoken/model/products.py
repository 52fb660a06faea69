"""The products that a decode step of a model runs, as the kernels' launch search wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firsttoken.kernels.gpu.candidates import Job
from firsttoken.kernels.gpu.launch import DENSE
from firsttoken.kernels.quant_forms import HEAD_FORMS, QuantForm
from firsttoken.kernels.quant_round import group_of
from firsttoken.model.config import ModelConfig


def products_of(
    config: ModelConfig, rows: Sequence[int], form: QuantForm | None = None, layer_kind: int = 0
) -> list[Job]:
    """A layer's four products and the head, each at every number of rows.

    `form` is what weights are rounded to at load, as `--quantization` says; without one they are as the checkpoint has
    them, a GGUF file's as in the combination of `config.kept_kinds` that `layer_kind` picks. A head that stays dense is
    among the products of dense weights alone.
    """
    c = config
    qkv = c.q_size + 2 * c.kv_size
    found: list[Job] = []
    for count in rows:
        layer = [
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
        ]
        layer = [replace(job, weight=_kind(c, form, job.k)) for job in layer]
        if form is None and c.kept_kinds:
            kept = zip(layer, c.kept_kinds[layer_kind], strict=True)
            layer = [replace(job, weight=kind or DENSE) for job, kind in kept]
        found += layer
        head = Job(name="head", op="norm_linear", n=c.vocab_size, k=c.hidden_size, rows=count, float_out=True)
        if c.kept_head is not None:  # is not rounded either
            head = replace(head, weight=c.kept_head)
        elif form in HEAD_FORMS:
            head = replace(head, weight=_kind(c, HEAD_FORMS[form], head.k))
        if head.weight != DENSE or all(job.weight == DENSE for job in layer):
            found.append(head)
    return found


def _kind(config: ModelConfig, form: QuantForm | None, k: int) -> str:
    """As `QuantLinear.kind` names a weight of k inputs."""
    published = config.quantization
    if form is not None:
        group = group_of(k, form)
        if group is None:
            return DENSE
        return f"{form}-{'row' if group >= k else group}{'-points' if form == 'int4' else ''}"
    if published is None:
        return DENSE
    group = published.group if published.group and published.group < k else 0
    rows = f"x{published.rows}" if published.rows > 1 else ""
    return f"{published.form}-{group or 'row'}{rows}{'-points' if published.points else ''}"
