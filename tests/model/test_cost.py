"""Costs of Qwen3-4B-Instruct-2507, whose figures are public, and of the other architectures by counting tensors."""

from __future__ import annotations

import math
from typing import Any

import pytest

from firsttoken.model import cost
from firsttoken.model.config import parse_config
from tests.builders import Kind, tiny_config, tiny_tensors
from tests.qwen3_4b import CONFIG

QWEN3_4B = parse_config(CONFIG)


def test_bytes_of_qwen3_4b() -> None:
    assert cost.num_parameters(QWEN3_4B) == 4_022_468_096
    assert cost.weight_bytes(QWEN3_4B) == 8_044_936_192
    assert cost.decode_weight_bytes(QWEN3_4B) == 8_044_936_192  # tied: the head is the embedding, read as a head
    assert cost.kv_bytes_per_token(QWEN3_4B) == 147_456
    assert cost.kv_bytes_per_token(QWEN3_4B, 1) == 73_728


def test_flops_of_qwen3_4b() -> None:
    assert cost.decode_flops(QWEN3_4B, 0) == pytest.approx(8.05e9, rel=1e-3)
    assert cost.decode_flops(QWEN3_4B, 1001) - cost.decode_flops(QWEN3_4B, 1) == 589_824 * 1000
    assert cost.layer_flops(QWEN3_4B) == pytest.approx(7.27e9, rel=1e-3)
    n = 4096
    assert cost.prefill_flops(QWEN3_4B, n) == cost.layer_flops(QWEN3_4B) * n + 294_912 * n * n
    attention = cost.attention_flops(QWEN3_4B, n, n) / cost.prefill_flops(QWEN3_4B, n)
    assert attention == pytest.approx(0.14, abs=0.005)


def test_a_prompt_costs_the_same_attention_in_chunks() -> None:
    whole = cost.attention_flops(QWEN3_4B, 4096, 4096)
    chunks = sum(cost.attention_flops(QWEN3_4B, 512, end) for end in range(512, 4097, 512))
    assert chunks == whole


@pytest.mark.parametrize(
    ("kind", "tied", "overrides"),
    [
        ("qwen3", False, {}),
        ("qwen3", True, {"attention_bias": True}),
        ("qwen2", False, {}),
        ("llama", True, {"attention_bias": True, "mlp_bias": True}),
    ],
)
def test_parameters_are_all_the_tensors_of_a_checkpoint(kind: Kind, tied: bool, overrides: dict[str, Any]) -> None:
    raw = tiny_config(kind, tied=tied, **overrides)
    tensors = tiny_tensors(raw)
    config = parse_config(raw)
    assert cost.num_parameters(config) == sum(math.prod(tensor.shape) for tensor in tensors.values())
    looked_up = 0 if tied else tensors["model.embed_tokens.weight"].numel()
    assert cost.decode_weight_bytes(config, 1) == cost.num_parameters(config) - looked_up
