"""Safetensors folders: shards, ties, types, and each thing that can be wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from firsttoken.errors import ModelError
from firsttoken.kernels.linear import DenseLinear, Linear
from firsttoken.model.config import load_config
from firsttoken.model.decoder import Decoder
from firsttoken.model.loading import build_decoder, open_weights
from tests.builders import tiny_config, tiny_tensors, write_checkpoint

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
DOWN = "model.layers.1.mlp.down_proj.weight"


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    config = load_config(folder)
    return build_decoder(config, open_weights(folder, config), dtype=dtype)


def weight_of(linear: Linear) -> Tensor:
    assert isinstance(linear, DenseLinear)
    return linear.weight


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def model(folder: Path, change: dict[str, Tensor | None], *, tied: bool = False, shards: int = 1) -> Path:
    config = tiny_config(tied=tied)
    tensors = {name: tensor for name, tensor in (tiny_tensors(config) | change).items() if tensor is not None}
    return write_checkpoint(folder, config, tensors, shards=shards)


def test_shards_are_one_model(tmp_path: Path) -> None:
    tensors = tiny_tensors(tiny_config())
    decoder = load(model(tmp_path, {}, shards=3))
    layer = decoder.layers[1]
    assert torch.equal(weight_of(layer.down), tensors[DOWN])
    attention = "model.layers.1.self_attn"
    fused = torch.cat([tensors[f"{attention}.{part}_proj.weight"] for part in "qkv"])
    assert torch.equal(weight_of(layer.qkv), fused)
    gate, up = tensors["model.layers.1.mlp.gate_proj.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
    assert torch.equal(weight_of(layer.gate_up), torch.cat([gate, up]))
    assert torch.equal(weight_of(decoder.head), tensors[HEAD])
    assert torch.equal(decoder.embedding, tensors[EMBEDDING])


def test_a_tied_head_is_the_embedding_even_where_the_file_has_another(tmp_path: Path) -> None:
    decoder = load(model(tmp_path, {HEAD: torch.ones(512, 64)}, tied=True))
    assert torch.equal(weight_of(decoder.head), decoder.embedding)
    assert not torch.equal(weight_of(decoder.head), torch.ones(512, 64))


def test_weights_take_the_dtype_that_was_asked_for(tmp_path: Path) -> None:
    half = {name: tensor.to(torch.bfloat16) for name, tensor in tiny_tensors(tiny_config()).items()}
    folder = write_checkpoint(tmp_path, tiny_config(), half)
    decoder = load(folder, torch.float32)
    assert weight_of(decoder.layers[0].down).dtype == torch.float32
    assert torch.equal(weight_of(decoder.layers[1].down), half[DOWN].to(torch.float32))
    assert load(folder, torch.bfloat16).layers[0].input_norm.weight.dtype == torch.bfloat16


def test_progress_ends_at_one(tmp_path: Path) -> None:
    folder, seen = model(tmp_path, {}), list[float]()
    config = load_config(folder)
    build_decoder(config, open_weights(folder, config), dtype=torch.float32, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    assert f"lacks tensors that Qwen3ForCausalLM needs: {DOWN}." in refusal(model(tmp_path, {DOWN: None}))
    assert "lm_head.weight" in refusal(model(tmp_path, {HEAD: None}))


def test_unexpected_tensors_are_named_but_stored_rope_tables_are_not(tmp_path: Path) -> None:
    harmless = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(16)}
    load(model(tmp_path / "harmless", {**harmless}))
    said = refusal(model(tmp_path / "biased", {"model.layers.0.self_attn.q_proj.bias": torch.ones(128)}))
    assert "no place for: model.layers.0.self_attn.q_proj.bias." in said


def test_wrong_shapes_and_types_are_named(tmp_path: Path) -> None:
    said = refusal(model(tmp_path / "shape", {DOWN: torch.ones(64, 95)}))
    assert f"{DOWN} has the shape [64, 95], but config.json asks for [64, 96]" in said
    said = refusal(model(tmp_path / "type", {DOWN: torch.ones(64, 96, dtype=torch.int8)}))
    assert f"{DOWN} is I8" in said


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = model(tmp_path, {}, shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors; fetch the model again" in refusal(folder)


def test_a_cut_file_is_damaged(tmp_path: Path) -> None:
    folder = model(tmp_path, {})
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    assert "cut short or damaged" in refusal(folder)


def test_pickles_are_never_read(tmp_path: Path) -> None:
    folder = model(tmp_path, {})
    (folder / "model.safetensors").unlink()
    assert "has no safetensors files" in refusal(folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    assert "only pickled weights" in refusal(folder)


def test_other_safetensors_names_are_found(tmp_path: Path) -> None:
    folder = model(tmp_path, {})
    (folder / "model.safetensors").unlink()
    save_file(tiny_tensors(tiny_config()), folder / "weights.safetensors")
    assert load(folder).config.num_layers == 2
