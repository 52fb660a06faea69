"""Which products a decode step is made of."""

from __future__ import annotations

from firsttoken.kernels.gpu.launch_table import table_for
from firsttoken.model.config import parse_config
from firsttoken.model.cost import decode_weight_bytes
from firsttoken.model.products import products_of
from tests.qwen3_4b import CONFIG


def test_the_4b_models_products_are_those_of_the_table_that_comes_with_firsttoken() -> None:
    config = parse_config(CONFIG)
    jobs = products_of(config, [1, 16])
    assert {(job.op, job.n, job.k) for job in jobs} == {(p.op, p.n, p.k) for p in table_for("NVIDIA H200").products}
    assert {job.rows for job in jobs} == {1, 16}
    assert [job.name for job in jobs if job.float_out] == ["head", "head"]
    layer_bytes = sum(job.weight_bytes for job in jobs[:4])
    expected = decode_weight_bytes(config)
    assert abs(config.num_layers * layer_bytes + jobs[4].weight_bytes - expected) < 1e-4 * expected, "all but the norms"
