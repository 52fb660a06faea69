"""Scales that a checkpoint brings for an FP8 KV cache: published names and shapes, and what is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from firsttoken.errors import ConfigError, ModelError
from firsttoken.kernels.linear import DenseLinear
from firsttoken.model.checkpoint import Checkpoint
from firsttoken.model.config import load_config, parse_config
from firsttoken.model.kv_scheme import KVScheme, parse_kv_scheme, wants_fp8
from firsttoken.model.loading import build_decoder
from tests.builders import Kind, tiny_config, tiny_tensors, write_checkpoint
from tests.model.kv_files import KV_ALONE, SCHEME, scales, write_with_kv
from tests.model.quant_files import float_quantized, write_quantised


@pytest.mark.parametrize(
    ("form", "shape", "kind"),
    [
        ("{0}_scale", (1,), "qwen3"),
        ("{0}_scale", (2, 1, 1), "qwen3"),  # the strategy attn_head
        ("attn.{0}_scale", (), "qwen2"),
        ("{0}_proj.{0}_scale", (1,), "qwen3"),
        ("{0}_proj.output_scale", (1,), "llama"),
    ],
)
def test_scales_are_read_under_every_published_name(
    form: str, shape: tuple[int, ...], kind: Kind, tmp_path: Path
) -> None:
    stored = scales(shape)
    found = write_with_kv(tmp_path, form, stored, kind).kv_scales()
    assert found is not None
    for layer, pair in zip(found, stored, strict=True):
        assert layer.dtype == torch.float32
        assert torch.equal(layer, torch.stack([scale.float().reshape(-1).expand(2) for scale in pair]))


def test_one_scale_may_be_that_of_keys_and_values(tmp_path: Path) -> None:
    found = write_with_kv(tmp_path, "kv_scale", [(scale, scale) for scale, _ in scales((1,))]).kv_scales()
    assert found is not None
    assert all(torch.equal(layer[0], layer[1]) for layer in found)


def test_a_projections_scale_says_nothing_of_keys_under_a_norm_of_their_own(tmp_path: Path) -> None:
    assert write_with_kv(tmp_path, "{0}_proj.output_scale", scales((1,)), "qwen3").kv_scales() is None


def test_scales_lie_beside_quantised_weights_too(tmp_path: Path) -> None:
    published = float_quantized("tensor")
    raw = tiny_config(hidden_size=64, intermediate_size=128)
    tensors = tiny_tensors(raw)
    tensors |= {f"model.layers.{i}.self_attn.{kind}_scale": torch.tensor([0.5]) for i in range(2) for kind in "kv"}
    published.config["kv_cache_scheme"] = SCHEME
    write_quantised(tmp_path, raw, tensors, published)
    config = load_config(tmp_path)
    assert config.quantization is not None
    assert config.kv_scheme == KVScheme()
    found = Checkpoint(tmp_path, config).kv_scales()
    assert found is not None
    assert all(torch.equal(layer, torch.full((2, 2), 0.5)) for layer in found)


def test_weights_are_dense_where_the_cache_alone_is_quantised(tmp_path: Path) -> None:
    groups = {"group_0": {"targets": ["Qwen3Attention"], "weights": None, "input_activations": SCHEME}}
    for config in (KV_ALONE, KV_ALONE | {"config_groups": groups}):
        source = write_with_kv(tmp_path, "{0}_scale", scales((1,)), config=config)
        loaded = load_config(tmp_path)
        assert loaded.quantization is None
        decoder = build_decoder(loaded, source, dtype=torch.float32)
        assert isinstance(decoder.layers[0].qkv, DenseLinear)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model.layers.1.self_attn.v_scale": None}, r"some .* only; it lacks model\.layers\.1\.self_attn\.v_scale"),
        ({"model.layers.0.self_attn.k_scale": torch.ones(3)}, r"float32 \[3\]; .* one for each of 2 heads"),
        ({"model.layers.0.self_attn.k_scale": torch.ones(1, dtype=torch.int8)}, "int8"),
        ({"model.layers.0.self_attn.k_scale": torch.tensor(-1.0)}, "a scale is a positive number"),
    ],
    ids=["missing", "shape", "integer", "negative"],
)
def test_what_cannot_be_a_models_scales_is_named(change: dict[str, Tensor | None], said: str, tmp_path: Path) -> None:
    raw = tiny_config(quantization_config=KV_ALONE)
    tensors = {f"model.layers.{i}.self_attn.{kind}_scale": torch.tensor(0.5) for i in range(2) for kind in "kv"}
    kept = {name: tensor for name, tensor in (tensors | change).items() if tensor is not None}
    write_checkpoint(tmp_path, raw, tiny_tensors(raw) | kept)
    with pytest.raises(ModelError, match=said):
        Checkpoint(tmp_path, parse_config(raw)).kv_scales()


@pytest.mark.parametrize(
    ("change", "objection"),
    [
        ({"strategy": "attn_head"}, ""),
        ({"strategy": None}, ""),
        ({"dynamic": True}, "dynamic scales"),
        ({"dynamic": "local"}, "dynamic scales"),
        ({"type": "int"}, "ints of 8 bits"),
        ({"num_bits": 4}, "floats of 4 bits"),
        ({"symmetric": False}, "zero points"),
        ({"strategy": "token"}, "scales by the strategy 'token'"),
    ],
    ids=str,
)
def test_a_declaration_is_taken_or_names_what_cannot_be_honoured(change: dict[str, Any], objection: str) -> None:
    scheme = parse_kv_scheme({"kv_cache_scheme": SCHEME | change})
    assert scheme == KVScheme(objection)
    for asked in ("auto", "fp8") if objection else ():
        with pytest.raises(ConfigError, match=f"asks for {objection}.*--kv-cache-dtype none"):
            wants_fp8(asked, scheme, kernels=True)
    assert not wants_fp8("none", scheme, kernels=True)


def test_auto_follows_a_declaration_where_kernels_read_fp8() -> None:
    assert parse_kv_scheme(None) is parse_kv_scheme({"kv_cache_scheme": None}) is None
    assert parse_kv_scheme({"kv_cache_scheme": "static"}) == KVScheme()
    assert parse_kv_scheme({"kv_cache_scheme": "dynamic"}) == KVScheme("'dynamic'")
    with pytest.raises(ModelError, match="an object, not 8"):
        parse_kv_scheme({"kv_cache_scheme": 8})
    assert wants_fp8("auto", KVScheme(), kernels=True)
    assert not wants_fp8("auto", KVScheme(), kernels=False)
    assert not wants_fp8("auto", None, kernels=True)
    assert wants_fp8("fp8_e4m3", None, kernels=False)
