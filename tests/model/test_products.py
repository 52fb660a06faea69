"""Which products a decode step is made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from firsttoken.kernels.gpu.launch import DENSE
from firsttoken.kernels.gpu.launch_table import table_for
from firsttoken.kernels.quant_forms import QuantForm
from firsttoken.kernels.quant_round import round_weight
from firsttoken.model.config import parse_config
from firsttoken.model.cost import decode_weight_bytes
from firsttoken.model.products import products_of
from tests.qwen3_4b import CONFIG


def test_the_4b_models_products_are_those_of_the_table_that_comes_with_firsttoken() -> None:
    config = parse_config(CONFIG)
    jobs = products_of(config, [1, 16])
    dense = [p for p in table_for("NVIDIA H200").products if p.weight == DENSE]
    assert {(job.op, job.n, job.k) for job in jobs} == {(p.op, p.n, p.k) for p in dense}
    assert {job.rows for job in jobs} == {1, 16}
    assert [job.name for job in jobs if job.float_out] == ["head", "head"]
    layer_bytes = sum(job.weight_bytes for job in jobs[:4])
    expected = decode_weight_bytes(config)
    assert abs(config.num_layers * layer_bytes + jobs[4].weight_bytes - expected) < 1e-4 * expected, "all but the norms"


@pytest.mark.parametrize("form", ["fp8", "int4"])
def test_rounded_at_load_they_are_the_tables_too(form: QuantForm) -> None:
    jobs = products_of(parse_config(CONFIG), [1], form)
    head = {job.name: job.weight for job in jobs[4:]}
    assert head == ({} if form == "fp8" else {"head": "int8-128"}), "FP8's stays as it is"
    jobs = jobs[:4]
    table = {(p.op, p.n, p.k, p.weight) for p in table_for("NVIDIA H200").products}
    assert {(job.op, job.n, job.k, job.weight) for job in jobs} <= table
    made = {round_weight(torch.ones(2, job.k), form).kind for job in jobs}
    assert {job.weight for job in jobs} == made


def test_a_quantised_checkpoint_has_its_own_kinds() -> None:
    published: dict[str, Any] = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    jobs = products_of(parse_config(CONFIG | {"quantization_config": published}), [1])
    assert {job.weight for job in jobs} == {"fp8-128x128"}
    published = {"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}
    jobs = products_of(parse_config(CONFIG | {"quantization_config": published}), [1])
    assert {job.weight for job in jobs} == {"int8-row"}


def test_inputs_that_cannot_be_rounded_stay_dense() -> None:
    jobs = products_of(parse_config(CONFIG | {"intermediate_size": 1000}), [1], "int4")
    assert {job.name: job.weight for job in jobs}["down"] == DENSE
