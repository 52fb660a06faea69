"""The demo model's greedy text, token by token, against transformers on the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from firsttoken import LLM
from firsttoken.model.config import load_config
from firsttoken.types import SamplingParams
from tests.model.gguf_files import read_llama

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "Water boils at",
    "Photosynthesis is the process by which",
    "Dear Sir or Madam,\n\nI am writing to",
    "Q: What is the largest planet?\nA:",
    "1, 1, 2, 3, 5, 8,",
    "The three laws of thermodynamics are:\n1.",
    "今天天气很好，",
    "中国的首都是",
    "请用中文介绍一下你自己。",
    "人工智能是",
    "def fibonacci(n):\n",
    "#include <stdio.h>\n\nint main(void) {\n",
    "SELECT name, COUNT(*) FROM users",
    "<html>\n<head>\n<title>",
    "I love pizza 🍕 and",
    "😀😀😀",
    "👩‍👩‍👧‍👦 family 🎉🎉",
    "Café, naïve, Zürich, Ελλάδα, Привет:",
)
NEW_TOKENS = 128
TIE = 1e-4  # logits this close may fall either way


@pytest.mark.demo
@torch.inference_mode()
def test_greedy_text_in_company_is_what_transformers_chooses_at_every_position(demo_file: Path) -> None:
    assert len(PROMPTS) == 20
    params = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
    with LLM(str(demo_file), device="cpu", dtype="float32") as llm:
        results = llm.generate(PROMPTS, params)
    reference = _reference(demo_file)
    for result in results:
        output = result.outputs[0].token_ids
        assert len(output) == NEW_TOKENS
        start = len(result.prompt_token_ids) - 1
        ids = torch.tensor([result.prompt_token_ids + output[:-1]])
        logits = reference(ids).logits[0, start:]  # [NEW_TOKENS, vocab]
        best = logits.max(dim=-1).values
        chosen = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
        assert bool((best - chosen < TIE).all()), result.prompt


def _reference(path: Path) -> LlamaForCausalLM:
    config = load_config(path)
    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            intermediate_size=config.intermediate_size,
            vocab_size=config.vocab_size,
            rms_norm_eps=config.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            max_position_embeddings=config.max_position_embeddings,
            tie_word_embeddings=True,
        )
    ).eval()
    weights = read_llama(path, heads=config.num_heads, kv_heads=config.num_kv_heads)
    model.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]})
    return model
