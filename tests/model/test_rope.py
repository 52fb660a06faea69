"""What an engine needs to know of RoPE beyond its numbers (those are compared with transformers through logits)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from firsttoken.model.config import parse_config
from firsttoken.model.rope import RopeTable, inverse_frequencies
from tests.builders import tiny_config

DYNAMIC = {"rope_type": "dynamic", "factor": 4.0}


def test_static_tables_are_shared_and_rows_are_positions() -> None:
    table = RopeTable(parse_config(tiny_config(max_position_embeddings=32)), 64)
    positions = torch.tensor([5, 0, 63])
    rope, rows = table.rows(positions, positions + 1)
    assert rope is table.rope
    assert rows is positions
    assert rope.cos.shape == (64, 16)
    assert rope.cos.dtype == torch.float32
    assert table.shareable_tokens is None
    assert not table.is_dynamic


def test_dynamic_rows_depend_on_position_and_length_alone() -> None:
    table = RopeTable(parse_config(tiny_config(max_position_embeddings=32, rope_scaling=DYNAMIC)), 256)
    assert table.is_dynamic
    assert table.shareable_tokens == 32
    positions, lengths = torch.tensor([3, 3, 3, 90]), torch.tensor([20, 32, 100, 100])
    rope, rows = table.rows(positions, lengths)
    assert torch.equal(rope.cos[rows[0]], table.rope.cos[3])  # within the original context nothing is stretched
    assert torch.equal(rope.cos[rows[1]], table.rope.cos[3])
    assert not torch.equal(rope.cos[rows[2]], table.rope.cos[3])
    alone, row = table.rows(positions[2:3], lengths[2:3])
    assert torch.equal(alone.cos[row[0]], rope.cos[rows[2]])


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 3.0},
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512},
        {"rope_type": "yarn", "factor": 1.0, "original_max_position_embeddings": 512},
        {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 24},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512,
        },
    ],
)
@pytest.mark.parametrize("theta", [10000.0, 5e6])
def test_frequencies_equal_those_of_transformers(scaling: dict[str, Any], theta: float) -> None:
    ours, factor = inverse_frequencies(
        parse_config(
            tiny_config("llama", head_dim=128, rope_theta=theta, rope_scaling=scaling, max_position_embeddings=4096)
        )
    )
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        head_dim=128,
        max_position_embeddings=4096,
        rope_parameters={**scaling, "rope_theta": theta},
    )
    expected, expected_factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu")
    torch.testing.assert_close(ours, expected, atol=0, rtol=1e-6)
    assert factor == pytest.approx(expected_factor, rel=1e-12)
