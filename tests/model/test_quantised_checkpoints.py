"""Checkpoints in every published quantised layout are the model that transformers runs on the same widened weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from firsttoken.errors import ModelError
from firsttoken.kernels.cpu_build import find_compiler
from firsttoken.kernels.cpu_forms import CpuLinear, CpuLinears
from firsttoken.kernels.cpu_ops import cpu_kernels
from firsttoken.kernels.linear import DenseLinear
from firsttoken.kernels.quant_linear import QuantLinear
from firsttoken.model.config import load_config
from firsttoken.model.decoder import Decoder
from firsttoken.model.loading import build_decoder, open_weights
from firsttoken.model.quant_linears import QuantLinears
from firsttoken.model.weights import LinearFactory
from tests.builders import tiny_config, tiny_tensors, write_checkpoint
from tests.model.paged_run import logits_in_chunks
from tests.model.quant_files import (
    Published,
    awq,
    float_quantized,
    gptq,
    int_quantized,
    official_fp8,
    pack_quantized,
    static_fp8,
    write_quantised,
)
from tests.model.test_decoder import prompt, theirs

CPU = torch.device("cpu")
EVEN = {"hidden_size": 256, "intermediate_size": 384}  # whole groups of 128
UNEVEN = {"hidden_size": 192, "intermediate_size": 320}  # whole groups of 64, and parts of blocks
UNTIED_QWEN2 = {"kind": "qwen2", "hidden_size": 256, "intermediate_size": 384}  # biases

LAYOUTS: dict[str, tuple[Published, dict[str, Any], str]] = {
    "fp8-blocks": (official_fp8(), UNEVEN, "fp8-128"),
    "fp8-whole-blocks": (official_fp8(), EVEN | {"head_dim": 64}, "fp8-128x128"),
    "fp8-tensor": (static_fp8(), UNEVEN, "fp8-row"),
    "float-quantized-tensor": (float_quantized("tensor"), UNTIED_QWEN2, "fp8-row"),
    "float-quantized-channel": (float_quantized("channel"), UNEVEN, "fp8-row"),
    "float-quantized-block": (float_quantized("block"), UNEVEN, "fp8-128"),
    "int-quantized": (int_quantized(), UNEVEN, "int8-row"),
    "pack-quantized": (pack_quantized(128), EVEN, "int4-128"),
    "pack-quantized-points": (pack_quantized(64, symmetric=False), UNEVEN, "int4-64-points"),
    "pack-quantized-8-bits": (pack_quantized(64, bits=8), UNEVEN, "int8-64"),
    "awq": (awq(128), UNTIED_QWEN2, "int4-128-points"),
    "awq-small-groups": (awq(32), UNEVEN, "int4-32-points"),
    "gptq": (gptq(128), EVEN, "int4-128"),
    "gptq-points": (gptq(64, sym=False), UNEVEN, "int4-64-points"),
    "gptq-v2": (gptq(64, sym=False, version="gptq_v2"), UNEVEN, "int4-64-points"),
    "gptq-8-bits": (gptq(32, bits=8, sym=False), UNEVEN, "int8-32-points"),
    "gptq-one-group": (gptq(-1), EVEN, "int4-row"),
    "gptq-in-order": (gptq(64, order=True), UNEVEN, "int4-64"),  # desc_act with static groups
}


def config_of(changes: dict[str, Any]) -> dict[str, Any]:
    kind = changes.get("kind", "qwen3")
    return tiny_config(kind, **{name: value for name, value in changes.items() if name != "kind"})


def write(folder: Path, layout: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    published, changes, _ = LAYOUTS[layout]
    raw = config_of(changes)
    return raw, write_quantised(folder, raw, tiny_tensors(raw), published)


def load(folder: Path, linears: LinearFactory | None = None) -> Decoder:
    config = load_config(folder)
    return build_decoder(config, open_weights(folder, config), dtype=torch.float32, make_linear=linears)


@pytest.mark.parametrize("layout", LAYOUTS)
@torch.inference_mode()
def test_a_published_layout_gives_the_logits_of_its_widened_weights(layout: str, tmp_path: Path) -> None:
    raw, seen = write(tmp_path / "quantised", layout)
    expected = theirs(write_checkpoint(tmp_path / "dense", raw, seen))(torch.tensor([prompt(40, seed=1)])).logits[0]
    kept = load(tmp_path / "quantised", QuantLinears(torch.float32, CPU))
    widened = load(tmp_path / "quantised")
    layer, name = kept.layers[1], "model.layers.1.mlp"
    assert isinstance(layer.gate_up, QuantLinear)
    assert layer.gate_up.kind == LAYOUTS[layout][2]
    pair = torch.cat([seen[f"{name}.gate_proj.weight"], seen[f"{name}.up_proj.weight"]])
    assert torch.equal(layer.gate_up.dequantize(), pair)
    assert isinstance(layer.qkv, QuantLinear)
    for decoder in (kept, widened):
        torch.testing.assert_close(logits_in_chunks(decoder, prompt(40, seed=1), 16), expected, atol=1e-4, rtol=1e-4)
    assert isinstance(widened.layers[1].down, DenseLinear)
    assert kept.weight_bytes < widened.weight_bytes / (1.4 if "8" in LAYOUTS[layout][2][:4] else 1.8)


@pytest.mark.skipif(find_compiler() is None, reason="needs a C compiler")
@pytest.mark.parametrize(("layout", "bits"), [("awq", 4), ("gptq", 4), ("pack-quantized-points", 4), ("fp8-blocks", 8)])
def test_a_cpu_keeps_four_bits_and_takes_eight_for_the_rest(layout: str, bits: int, tmp_path: Path) -> None:
    _, seen = write(tmp_path, layout)
    down = load(tmp_path, CpuLinears(cpu_kernels())).layers[0].down
    assert isinstance(down, CpuLinear)
    assert down.bits == bits
    expected = seen["model.layers.0.mlp.down_proj.weight"]
    error = (down.dequantize() - expected).norm() / expected.norm()
    assert error < (5e-4 if bits == 4 else 6e-3)


def test_modules_left_out_of_the_quantisation_are_dense(tmp_path: Path) -> None:
    published, changes, _ = LAYOUTS["fp8-blocks"]
    raw = config_of(changes)
    write_quantised(tmp_path / "all", raw, tiny_tensors(raw), published)
    spared = "model.layers.0.mlp.down_proj"

    def store(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        is_spared = torch.equal(weight, tiny_tensors(raw)[f"{spared}.weight"])
        return ({"weight": weight}, weight) if is_spared else published.store(weight)

    config = published.config | {"modules_to_not_convert": [spared]}
    write_quantised(tmp_path / "some", raw, tiny_tensors(raw), Published(config, store))
    decoder = load(tmp_path / "some", QuantLinears(torch.float32, CPU))
    assert isinstance(decoder.layers[0].down, DenseLinear)
    assert isinstance(decoder.layers[1].down, QuantLinear)


def test_a_bias_that_the_model_has_no_place_for_may_be_there_if_it_adds_nothing(tmp_path: Path) -> None:
    published, changes, _ = LAYOUTS["gptq"]
    raw = config_of(changes)

    def with_bias(value: float) -> Published:
        def store(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
            parts, seen = published.store(weight)
            return parts | {"bias": torch.full((len(weight),), value)}, seen

        return Published(published.config, store)

    write_quantised(tmp_path / "zeros", raw, tiny_tensors(raw), with_bias(0.0))
    assert load(tmp_path / "zeros").layers[0].down.bias is None
    write_quantised(tmp_path / "ones", raw, tiny_tensors(raw), with_bias(1.0))
    with pytest.raises(ModelError, match=r"no place for: model.layers.0.mlp.down_proj.bias"):
        load(tmp_path / "ones")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"quant_method": "bitsandbytes"}, "'bitsandbytes' are not supported; use an FP8, AWQ, GPTQ"),
        ({"quant_method": "awq", "version": "gemv"}, "version gemm of 4 bits"),
        ({"quant_method": "gptq", "bits": 3}, "4 or 8 bits, not 3"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 16}, "multiples of 32 inputs, not 16"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "as e4m3, not 'e5m2'"),
        ({"quant_method": "fp8", "weight_block_size": 128}, "two numbers, not 128"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "one scheme in config_groups"),
        (float_quantized("channel").config | {"format": "marlin-24"}, "format 'marlin-24'"),
        (pack_quantized(64).config | {"format": "int-quantized"}, "4 bits are supported as pack-quantized"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_refused_by_its_config(config: dict[str, Any], said: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, tiny_config() | {"quantization_config": config}, {})
    with pytest.raises(ModelError, match=said):
        load_config(tmp_path)


def damaged(layout: str, part: str, tensor: Tensor | None, folder: Path) -> str:
    """What is said of a checkpoint whose first up_proj has another tensor, or none, for one of its parts."""
    published, changes, _ = LAYOUTS[layout]
    raw = config_of(changes)
    first = tiny_tensors(raw)["model.layers.0.mlp.up_proj.weight"]

    def store(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        parts, seen = published.store(weight)
        if torch.equal(weight, first):
            parts.pop(part, None)
            if tensor is not None:
                parts[part] = tensor
        return parts, seen

    write_quantised(folder, raw, tiny_tensors(raw), Published(published.config, store))
    with pytest.raises(ModelError) as caught:
        load(folder)
    return str(caught.value)


def test_a_checkpoint_that_breaks_its_promise_is_named(tmp_path: Path) -> None:
    up = "model.layers.0.mlp.up_proj"
    shuffled = torch.arange(192, dtype=torch.int32).flip(0) // 64
    assert "desc_act" in damaged("gptq-points", "g_idx", shuffled, tmp_path / "order")
    assert f"{up} lacks qzeros" in damaged("awq", "qzeros", None, tmp_path / "lacks")
    said = damaged("awq", "scales", torch.ones(2, 5), tmp_path / "shape")
    assert f"{up}.scales has the shape [2, 5], but config.json asks for [2, 384]" in said
    assert f"{up}.weight is F32" in damaged("fp8-blocks", "weight", torch.ones(320, 192), tmp_path / "type")
    said = damaged("pack-quantized-points", "weight_zero_point", None, tmp_path / "points")
    assert "lacks weight_zero_point" in said
