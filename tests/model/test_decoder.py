"""Logits against transformers on the same weights, whole and in chunks through the paged cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from firsttoken.kernels.linear import DenseLinear
from firsttoken.model.config import load_config
from firsttoken.model.decoder import Decoder
from firsttoken.model.loading import build_decoder, open_weights
from tests.builders import VOCAB_SIZE, Kind, tiny_config, tiny_tensors, write_checkpoint
from tests.model.paged_run import PagedRun, logits_in_chunks

TOLERANCE = 1e-4

MODELS: dict[str, tuple[Kind, bool, dict[str, Any]]] = {
    "qwen3": ("qwen3", False, {}),
    "qwen3-tied": ("qwen3", True, {}),
    "qwen3-biased": ("qwen3", False, {"attention_bias": True}),
    "qwen2": ("qwen2", False, {}),
    "qwen2-tied": ("qwen2", True, {}),
    "llama": ("llama", False, {}),
    "llama-tied-biased": ("llama", True, {"attention_bias": True, "mlp_bias": True}),
    "llama-one-kv-head": ("llama", False, {"num_key_value_heads": 1}),
    "llama-no-gqa-own-head-dim": ("llama", False, {"num_key_value_heads": 4, "head_dim": 24}),
}

ORIGINAL = 48  # positions before scaling; the prompt below is longer
ROPES: dict[str, dict[str, Any]] = {
    "theta": {"rope_theta": 5e6},
    "parameters-of-v5": {"rope_parameters": {"rope_type": "default", "rope_theta": 777.0}, "rope_theta": None},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "legacy-type-key": {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}},
    "yarn-untruncated": {
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 3.0,
            "beta_fast": 16,
            "beta_slow": 2,
            "truncate": False,
            "original_max_position_embeddings": ORIGINAL,
        }
    },
    "yarn-mscale": {
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "mscale": 1.5,
            "mscale_all_dim": 0.7,
            "original_max_position_embeddings": ORIGINAL,
        }
    },
    "yarn-attention-factor": {
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "attention_factor": 1.3,
            "original_max_position_embeddings": ORIGINAL,
        }
    },
    "llama3": {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": ORIGINAL // 2,
        }
    },
}


def write_model(folder: Path, kind: Kind, tied: bool, overrides: dict[str, Any]) -> Path:
    config = {key: value for key, value in tiny_config(kind, tied=tied, **overrides).items() if value is not None}
    return write_checkpoint(folder, config, tiny_tensors(config))


def load(folder: Path) -> Decoder:
    config = load_config(folder)
    return build_decoder(config, open_weights(folder, config), dtype=torch.float32)


def theirs(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def prompt(length: int, seed: int) -> list[int]:
    return torch.randint(VOCAB_SIZE, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path, *MODELS[name])
    token_ids = prompt(75, seed=len(name))
    expected = theirs(folder)(torch.tensor([token_ids])).logits[0]
    decoder = load(folder)
    for chunk in (75, 16, 7):
        torch.testing.assert_close(
            logits_in_chunks(decoder, token_ids, chunk), expected, atol=TOLERANCE, rtol=TOLERANCE
        )


@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@torch.inference_mode()
def test_each_rope_kind_equals_transformers_beyond_the_original_context(name: str, kind: Kind, tmp_path: Path) -> None:
    folder = write_model(tmp_path, kind, False, {"max_position_embeddings": ORIGINAL} | ROPES[name])
    token_ids = prompt(ORIGINAL * 2 + 11, seed=3)
    expected = theirs(folder)(torch.tensor([token_ids])).logits[0]
    decoder = load(folder)
    for chunk in (len(token_ids), 17):
        torch.testing.assert_close(
            logits_in_chunks(decoder, token_ids, chunk), expected, atol=TOLERANCE, rtol=TOLERANCE
        )


@pytest.mark.parametrize("length", [ORIGINAL - 4, ORIGINAL, ORIGINAL + 9])
@torch.inference_mode()
def test_dynamic_rope_generates_as_transformers_does(length: int, tmp_path: Path) -> None:
    overrides = {"max_position_embeddings": ORIGINAL} | ROPES["dynamic"]
    folder = write_model(tmp_path, "llama", False, overrides)
    token_ids = prompt(length, seed=length)
    out = theirs(folder).generate(
        torch.tensor([token_ids]),
        attention_mask=torch.ones(1, length, dtype=torch.long),
        max_new_tokens=9,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    generated = out.sequences[0, length:].tolist()
    decoder = load(folder)

    run = PagedRun(decoder, prompt_length=length)
    ours = [run.step(token_ids[:30]), run.step(token_ids[30:])[-1:]][1:]
    ours += [run.step([token]) for token in generated[:-1]]
    torch.testing.assert_close(torch.cat(ours), torch.cat(out.logits), atol=TOLERANCE, rtol=TOLERANCE)

    recomputed = PagedRun(decoder, prompt_length=length)  # as after a preemption: prompt and output in one chunk
    again = recomputed.step(token_ids + generated[:-1])[length - 1 :]
    torch.testing.assert_close(again, torch.cat(ours), atol=TOLERANCE, rtol=TOLERANCE)


def test_weight_bytes_are_those_a_decode_step_reads(tmp_path: Path) -> None:
    decoder = load(write_model(tmp_path, "qwen3", True, {}))
    matrices = 2 * (64 * 256 + 128 * 64 + 3 * 64 * 96) + VOCAB_SIZE * 64
    assert decoder.weight_bytes == 4 * matrices
    assert isinstance(decoder.head, DenseLinear)
    assert decoder.embedding.data_ptr() == decoder.head.weight.data_ptr()  # tied: kept once
