"""What a step must read and compute, from configs, GGUF files and a server's own numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders import tiny_config, tiny_tensors
from tests.model.gguf_files import write_gguf
from tests.model.quant_files import pack_quantized
from tests.qwen3_4b import CONFIG

from firsttoken.bench.model_costs import find_model_costs, read_model_costs, with_card
from firsttoken.errors import ConfigError, ModelError


def config_file(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(CONFIG | changes))
    return path


def test_a_config_gives_bytes_and_flops(tmp_path: Path) -> None:
    for path in (config_file(tmp_path), tmp_path):
        costs = read_model_costs(path)
        assert costs.weight_bytes == 8_044_936_192
        assert costs.kv_bytes_per_token == 147_456
        assert costs.decode_flops(0) == pytest.approx(8.05e9, rel=1e-3)
        assert costs.prefill_flops(4096, 4096) == pytest.approx(7.27e9 * 4096 + 294_912 * 4096**2, rel=1e-3)


def test_a_cached_prefix_is_read_instead_of_computed(tmp_path: Path) -> None:
    costs = read_model_costs(config_file(tmp_path))
    whole, rest = costs.prefill_flops(4096, 4096), costs.prefill_flops(96, 4096)
    assert whole is not None
    assert rest is not None
    assert rest < whole / 30
    assert costs.prefill_bytes(4000) == costs.weight_bytes + 4000 * 147_456


def test_kv_in_fp8_takes_half(tmp_path: Path) -> None:
    assert read_model_costs(config_file(tmp_path), kv_element_bytes=1.0).kv_bytes_per_token == 73_728


@pytest.mark.parametrize(
    ("quantised", "bytes_a_weight"),
    [
        ({"quant_method": "fp8"}, 1.0),
        ({"quant_method": "awq", "bits": 4}, 0.5),
        ({"quant_method": "gptq", "bits": 8}, 1),
        (pack_quantized(128).config, 0.5),
    ],
)
def test_quantised_layers_count_their_bits_and_the_head_two_bytes(
    tmp_path: Path, quantised: dict[str, Any], bytes_a_weight: float
) -> None:
    head = 151_936 * 2560
    costs = read_model_costs(config_file(tmp_path, quantization_config=quantised))
    assert costs.weight_bytes == 2 * head + (4_022_468_096 - head) * bytes_a_weight


def test_an_unknown_quantisation_is_said_and_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'secret' are not known"):
        read_model_costs(config_file(tmp_path, quantization_config={"quant_method": "secret"}))


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_counts_the_bytes_of_its_tensors(tmp_path: Path, tied: bool) -> None:
    raw = tiny_config("llama", tied=tied)
    tensors = tiny_tensors(raw)
    path = tmp_path / "model.gguf"
    write_gguf(path, raw, tensors)
    costs = read_model_costs(path)
    looked_up = 0 if tied else tensors["model.embed_tokens.weight"].numel()
    weights = 4 * (sum(tensor.numel() for tensor in tensors.values()) - looked_up)
    assert weights <= costs.weight_bytes <= weights + 32 * len(tensors)  # padding between tensors
    assert costs.config is not None


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_file_that_is_no_config_is_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="config"):
        read_model_costs(path)
    with pytest.raises(ConfigError, match="There is no model config"):
        read_model_costs(tmp_path / "other.json")


def test_the_servers_own_numbers_go_before_the_configs(tmp_path: Path) -> None:
    costs = read_model_costs(config_file(tmp_path))
    known = with_card(costs, {"weight_bytes": "2500000000", "kv_bytes_per_token": 73_728})
    assert known is not None
    assert (known.weight_bytes, known.kv_bytes_per_token, known.config) == (2.5e9, 73_728, costs.config)
    assert with_card(costs, {"weight_bytes": 0}) is costs


def test_the_servers_numbers_alone_bound_memory_but_no_arithmetic() -> None:
    known = find_model_costs("demo", {"weight_bytes": 85_000_000})
    assert not isinstance(known, str)
    assert (known.weight_bytes, known.kv_bytes_per_token) == (85e6, 0.0)
    assert known.prefill_flops(10, 10) is None
    assert known.decode_flops(10) is None


def test_a_local_path_is_its_own_config_and_a_given_file_goes_first(tmp_path: Path) -> None:
    config_file(tmp_path)
    (tmp_path / "small").mkdir()
    config_file(tmp_path / "small", num_hidden_layers=1)
    by_name = find_model_costs(str(tmp_path), {})
    given = find_model_costs(str(tmp_path), {}, read_model_costs(tmp_path / "small"))
    assert not isinstance(by_name, str)
    assert not isinstance(given, str)
    assert by_name.weight_bytes == 8_044_936_192
    assert given.weight_bytes < by_name.weight_bytes / 5


def test_a_model_that_nothing_is_known_of_is_said(tmp_path: Path) -> None:
    text = find_model_costs("Qwen/Qwen3-4B-Instruct-2507", {"id": "x"})
    assert isinstance(text, str)
    assert text.startswith("No ceilings: the config of Qwen/Qwen3-4B-Instruct-2507 is not here")
    assert isinstance(find_model_costs(str(tmp_path), {}), str)  # a folder, but of something else


def test_a_config_without_a_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="hidden_size"):
        read_model_costs(config_file(tmp_path, hidden_size=None))
