"""Our readers of the usual GGUF types against those of the `gguf` package."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from firsttoken.errors import ModelError
from firsttoken.model.dequantize import dequantize


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0", "Q5_0", "Q6_K", "IQ4_NL"])
def test_random_blocks_widen_to_the_same_bits(name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]
    rng = np.random.default_rng(5)
    block_bytes = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (70, 3, block_bytes), dtype=np.uint8)
    scales = rng.normal(0, 0.1, (70, 3, 2)).astype(np.float16).view(np.uint8)
    where = block_bytes - 2 if name == "Q6_K" else 0  # keeps float16 fields from being NaN
    blocks[..., where : where + 2] = scales[..., :2]
    if name == "Q4_1":
        blocks[..., 2:4] = scales[..., 2:]
    data = blocks.reshape(70, -1)
    ours = dequantize(data, int(kind))
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, gguf.dequantize(data, kind))


def test_a_type_that_is_no_weight_is_named() -> None:
    with pytest.raises(ModelError, match="type Q8_K cannot be read"):
        dequantize(np.zeros((2, 292), dtype=np.uint8), int(gguf.GGMLQuantizationType.Q8_K))
