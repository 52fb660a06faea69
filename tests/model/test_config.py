"""Configs read from JSON: what each architecture means, and what is refused in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firsttoken.errors import ModelError
from firsttoken.model.config import default_sampling, load_config, parse_config
from tests.builders import tiny_config

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}


def test_each_architecture_has_its_own_norms_and_biases() -> None:
    qwen3, qwen2, llama = (parse_config(tiny_config(kind)) for kind in ("qwen3", "qwen2", "llama"))
    assert (qwen3.qk_norm, qwen3.qkv_bias, qwen3.o_bias, qwen3.mlp_bias) == (True, False, False, False)
    assert (qwen2.qk_norm, qwen2.qkv_bias, qwen2.o_bias, qwen2.mlp_bias) == (False, True, False, False)
    assert (llama.qk_norm, llama.qkv_bias, llama.o_bias, llama.mlp_bias) == (False, False, False, False)
    biased = parse_config(tiny_config("llama", attention_bias=True, mlp_bias=True))
    assert (biased.qkv_bias, biased.o_bias, biased.mlp_bias) == (True, True, True)


def test_absent_keys_take_the_defaults_of_transformers() -> None:
    def config_without(kind: Any, *keys: str) -> dict[str, Any]:
        return {key: value for key, value in tiny_config(kind).items() if key not in keys}

    assert parse_config(config_without("llama", "num_key_value_heads")).num_kv_heads == 4
    assert parse_config(config_without("llama", "head_dim")).head_dim == 16
    assert parse_config(config_without("qwen3", "head_dim")).head_dim == 128
    assert parse_config(config_without("qwen3", "rope_theta")).rope_theta == 10000.0
    assert parse_config(config_without("llama", "tie_word_embeddings")).tie_word_embeddings is False


def test_rope_is_read_from_either_form() -> None:
    old = parse_config(tiny_config(rope_theta=5e6, rope_scaling={"type": "linear", "factor": 2}))
    new = parse_config(tiny_config(rope_parameters={"rope_type": "linear", "factor": 2, "rope_theta": 5e6}))
    assert (old.rope_theta, old.rope_scaling) == (new.rope_theta, new.rope_scaling)
    assert old.rope_scaling == {"rope_type": "linear", "factor": 2}
    assert parse_config(tiny_config(rope_scaling=None)).rope_scaling == {"rope_type": "default"}


def test_the_context_grows_with_scaling_and_an_override_can_turn_it_off() -> None:
    config = parse_config(tiny_config())
    assert config.context_length == 1024
    scaled = config.with_rope(YARN)
    assert scaled.context_length == 4096
    assert scaled.with_rope({}).context_length == 1024
    assert config.with_rope({"rope_theta": 2e6}).rope_theta == 2e6
    assert config.with_rope({"rope_type": "dynamic", "factor": 2.0}).context_length == 2048
    assert config.with_rope(None) is config


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"architectures": ["Qwen3MoeForCausalLM"]}, "Qwen3MoeForCausalLM is not supported; supported are Qwen3For"),
        ({"architectures": None, "model_type": "gpt2"}, "gpt2 is not supported"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"hidden_size": None}, "'hidden_size' as a positive integer"),
        ({"num_key_value_heads": 3}, "4 query heads over 3 KV heads"),
        ({"quantization_config": {"quant_method": "eetq"}}, "'eetq'"),
        ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}, "Sliding-window"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2}}, "'longrope' is not supported"),
        ({"rope_scaling": {"rope_type": "linear"}}, "needs 'factor'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "needs 'low_freq_factor'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_config(tiny_config(**change))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sliding_window_that_changes_nothing_is_accepted() -> None:
    plain = parse_config(tiny_config())
    assert parse_config(tiny_config(use_sliding_window=False, sliding_window=64)) == plain
    assert parse_config(tiny_config(use_sliding_window=True, sliding_window=1024, max_window_layers=1)) == plain
    assert parse_config(tiny_config(use_sliding_window=True, sliding_window=64, max_window_layers=2)) == plain


def test_end_ids_are_those_of_both_files_in_order() -> None:
    config = parse_config(tiny_config(eos_token_id=7), {"eos_token_id": [9, 7], "bos_token_id": 3})
    assert config.eos_token_ids == (9, 7)
    assert config.bos_token_id == 3


def test_generation_config_gives_the_sampling_defaults() -> None:
    recommended = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "max_length": 99}
    assert default_sampling(recommended) == {"temperature": 0.7, "top_p": 0.8, "top_k": 20.0}
    assert default_sampling({"do_sample": False, "temperature": 0.7}) == {"temperature": 0.0}
    assert default_sampling({"eos_token_id": 1}) == {}


@pytest.mark.parametrize("value", ["hot", True, float("nan"), [0.7]])
def test_a_sampling_default_that_is_no_number_is_named(value: object) -> None:
    with pytest.raises(ModelError, match=r"generation_config\.json needs 'temperature' as a number"):
        default_sampling({"temperature": value})


def test_folders_that_hold_no_model_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json"):
        load_config(tmp_path)
    with pytest.raises(ModelError, match="There is no model at"):
        load_config(tmp_path / "absent")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read as JSON"):
        load_config(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps([1]))
    with pytest.raises(ModelError, match="JSON object"):
        load_config(tmp_path)


def test_config_cost_and_hub_import_no_torch() -> None:
    modules = "config, cost, hub, vocabulary, gguf_config"
    heavy = "bool({'torch', 'numpy', 'pydantic'} & set(sys.modules))"
    code = f"import sys; from firsttoken.model import {modules}; sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
