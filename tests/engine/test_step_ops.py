"""What a GPU's steps queue, as far as it can be known without one."""

from __future__ import annotations

import pytest
import torch
from tests.builders import tiny_config

from firsttoken.model.config import parse_config

pytest.importorskip("triton")

from firsttoken.engine.step_ops import first_of_each_kind
from firsttoken.model.made_up import hollow_decoder


def test_a_rehearsal_takes_a_layer_of_each_kind() -> None:
    """A kernel that is first met while a graph is captured would be compiled, and its counters made, in there."""
    config = parse_config(tiny_config(hidden_size=256, intermediate_size=384))
    dense, rounded = (hollow_decoder(config, torch.bfloat16, form).layers[0] for form in (None, "int8"))
    assert first_of_each_kind([dense, dense, rounded, dense]) == [0, 2]
