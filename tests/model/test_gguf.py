"""GGUF files: every architecture and several quantisations against transformers on the dequantised weights."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from firsttoken.errors import ModelError
from firsttoken.kernels.gpu.launch import DENSE
from firsttoken.kernels.quant_linear import QuantLinear
from firsttoken.model.config import load_config, parse_config
from firsttoken.model.decoder import Decoder
from firsttoken.model.gguf_header import GGUFHeader
from firsttoken.model.loading import build_decoder, open_weights
from firsttoken.model.products import products_of
from firsttoken.model.quant_linears import QuantLinears
from firsttoken.model.rope import inverse_frequencies
from firsttoken.model.rope_scaling import FREQUENCY_FACTORS
from tests.builders import VOCAB_SIZE, Kind, tiny_config, tiny_tensors, write_checkpoint
from tests.model.gguf_files import read_llama, write_gguf
from tests.model.paged_run import logits_in_chunks

TOKENS = torch.randint(VOCAB_SIZE, (40,), generator=torch.Generator().manual_seed(8)).tolist()
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def load(path: Path) -> Decoder:
    config = load_config(path)
    return build_decoder(config, open_weights(path, config), dtype=torch.float32)


def theirs(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "tied", "quantization", "overrides"),
    [
        ("llama", True, "Q4_1", {}),
        ("llama", False, "Q8_0", {"attention_bias": True, "mlp_bias": True}),
        ("llama", False, "F16", {}),
        ("qwen2", True, "Q4_0", {}),
        ("qwen2", False, "BF16", {}),
        ("qwen3", True, "Q5_1", {}),
        ("qwen3", False, "F32", {}),
    ],
)
@torch.inference_mode()
def test_a_gguf_file_answers_as_its_dequantised_weights_do(
    kind: Kind, tied: bool, quantization: str, overrides: dict[str, Any], tmp_path: Path
) -> None:
    config = tiny_config(kind, tied=tied, **overrides)
    path = tmp_path / "model.gguf"
    weights = write_gguf(path, config, tiny_tensors(config), quantization)
    folder = write_checkpoint(tmp_path / "dense", config, weights)
    expected = theirs(folder)(torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(logits_in_chunks(load(path), TOKENS, 16), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("quantization", ["Q8_0", "Q4_1"])
def test_rows_kept_in_blocks_are_in_the_same_order_as_dense_ones(quantization: str, tmp_path: Path) -> None:
    config = tiny_config("llama")
    path = tmp_path / "model.gguf"
    weights = write_gguf(path, config, tiny_tensors(config), quantization)
    source = open_weights(path, load_config(path))
    for name in ("model.layers.1.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight"):
        raw = source.take(name)
        assert raw.tensor is None
        assert raw.data is not None
        assert raw.data.shape[0] == raw.shape[0]
        assert torch.equal(raw.dequantize(), weights[name])


def test_metadata_gives_the_same_config_as_json(tmp_path: Path) -> None:
    for kind in ("qwen3", "qwen2", "llama"):
        raw = tiny_config(kind, rope_theta=5e6, eos_token_id=7, bos_token_id=5)
        path = tmp_path / f"{kind}.gguf"
        ids: dict[str, int | float | str | None] = {
            "tokenizer.ggml.eos_token_id": 7,
            "tokenizer.ggml.bos_token_id": 5,
        }
        write_gguf(path, raw, tiny_tensors(raw), metadata=ids)
        assert load_config(path) == parse_config(raw)


def test_rope_scaling_and_sampling_defaults_come_from_the_metadata(tmp_path: Path) -> None:
    raw = tiny_config("qwen3")
    path = tmp_path / "model.gguf"
    extra: dict[str, int | float | str | None] = {
        "qwen3.rope.scaling.type": "yarn",
        "qwen3.rope.scaling.factor": 4.0,
        "qwen3.rope.scaling.original_context_length": 256,
        "general.sampling.temp": 0.5,
        "general.sampling.top_k": 20,
        "tokenizer.ggml.eos_token_id": 7,
        "tokenizer.ggml.eot_token_id": 9,
    }
    write_gguf(path, raw, tiny_tensors(raw), metadata=extra)
    config = load_config(path)
    assert config.rope_scaling == {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
    assert config.default_sampling == {"temperature": 0.5, "top_k": 20.0}
    assert config.eos_token_ids == (7, 9)


def test_llama3_frequencies_come_from_the_factors_in_the_file(tmp_path: Path) -> None:
    raw = tiny_config("llama", head_dim=32, rope_scaling=LLAMA3)
    scaled, _ = inverse_frequencies(parse_config(raw))
    plain, _ = inverse_frequencies(parse_config(raw).with_rope({}))
    path = tmp_path / "model.gguf"
    write_gguf(path, raw, tiny_tensors(raw) | {"rope_freqs.weight": plain / scaled})
    config = load_config(path)
    assert config.rope_scaling["rope_type"] == FREQUENCY_FACTORS
    torch.testing.assert_close(inverse_frequencies(config)[0], scaled, atol=0, rtol=1e-6)


def test_a_file_that_cannot_be_opened_is_told_with_the_systems_reason(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot be read \(Is a directory\); check the path and who may read it"):
        GGUFHeader(tmp_path)


def test_what_is_no_model_is_refused_in_one_sentence(tmp_path: Path) -> None:
    raw, path = tiny_config("llama"), tmp_path / "model.gguf"
    tensors = tiny_tensors(raw)

    path.write_bytes(b"PK\x03\x04 not a model at all, but long enough")
    assert "is not a GGUF file" in refusal(path)
    path.write_bytes(b"")
    assert "is empty; fetch the file again" in refusal(path)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 9, 0, 0))
    assert "GGUF version 9" in refusal(path)
    write_gguf(path, {**raw, "model_type": "gemma"}, tensors)
    assert "'gemma' are not supported; supported are qwen3, qwen2, llama" in refusal(path)
    write_gguf(path, raw, tensors, metadata={"llama.expert_count": 8})
    assert "Mixture-of-experts" in refusal(path)
    write_gguf(path, raw, tensors, metadata={"split.count": 3})
    assert "one part of a split GGUF" in refusal(path)
    write_gguf(path, raw, tensors, metadata={"llama.context_length": None})
    assert "'llama.context_length'" in refusal(path)
    write_gguf(path, raw, tensors, metadata={"llama.rope.dimension_count": 8})
    assert "a part of each head" in refusal(path)


def test_wrong_tensors_are_named(tmp_path: Path) -> None:
    raw, path = tiny_config("llama"), tmp_path / "model.gguf"
    tensors = tiny_tensors(raw)
    down = "model.layers.1.mlp.down_proj.weight"
    write_gguf(path, raw, {name: tensor for name, tensor in tensors.items() if name != down})
    assert "lacks tensors that LlamaForCausalLM needs: blk.1.ffn_down.weight" in refusal(path)
    write_gguf(path, raw, tensors | {down: torch.ones(64, 32)})
    assert "blk.1.ffn_down.weight has the shape [64, 32], but its metadata asks for [64, 96]" in refusal(path)
    write_gguf(path, raw, tensors | {"model.layers.1.self_attn.q_norm.weight": torch.ones(16)})
    assert "no place for: blk.1.attn_q_norm.weight" in refusal(path)


def test_a_file_cut_short_is_noticed_before_it_is_used(tmp_path: Path) -> None:
    raw, path = tiny_config("llama"), tmp_path / "model.gguf"
    write_gguf(path, raw, tiny_tensors(raw))
    content = path.read_bytes()
    path.write_bytes(content[:-4096])
    assert "is cut short" in refusal(path)
    path.write_bytes(content[:300])
    assert "cut short or damaged" in refusal(path)


def test_arrays_are_read_on_demand(tmp_path: Path) -> None:
    raw, path = tiny_config("llama"), tmp_path / "model.gguf"
    write_gguf(path, raw, tiny_tensors(raw), tokens=["a", "世界", ""], token_types=[1, 3, 5])
    with GGUFHeader(path) as header:
        assert header.length("tokenizer.ggml.tokens") == 3
        assert header.get("tokenizer.ggml.tokens") == ["a", "世界", ""]
        assert header.get("tokenizer.ggml.token_type") == [1, 3, 5]
        assert header.get("absent", 4) == 4


@pytest.mark.demo
def test_the_demo_model_has_the_sampling_that_its_card_recommends(demo_file: Path) -> None:
    assert load_config(demo_file).default_sampling == {"temperature": 0.2, "top_p": 0.9}


@pytest.mark.demo
@torch.inference_mode()
def test_the_demo_model_equals_transformers_on_the_same_file(demo_file: Path) -> None:
    decoder = load(demo_file)
    token_ids = [
        1,
        9690,
        198,
        2683,
        359,
        253,
        5356,
        5646,
        11173,
        3365,
        3511,
        308,
        34519,
        28,
        7018,
        411,
        407,
        19712,
        8182,
    ]
    config = LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49152,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    )
    with torch.device("meta"):  # no time for random weights that are replaced at once
        reference: Any = LlamaForCausalLM(config).eval()
    weights = read_llama(demo_file, heads=9, kv_heads=3)
    reference.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]}, assign=True)
    reference.model.rotary_emb = LlamaRotaryEmbedding(config)
    expected = reference(torch.tensor([token_ids])).logits[0]
    for chunk in (len(token_ids), 5):
        torch.testing.assert_close(logits_in_chunks(decoder, token_ids, chunk), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("tied", [False, True])
def test_the_config_tells_what_a_gpu_keeps_of_each_layer_in_its_bits(tied: bool, tmp_path: Path) -> None:
    config = tiny_config("qwen3", tied=tied, num_hidden_layers=3)
    path = tmp_path / "model.gguf"
    others = {"layers.1.mlp.down": "Q8_0", "v_proj": "Q4_1", "embed" if tied else "lm_head": "Q8_0"}
    write_gguf(path, config, tiny_tensors(config), "Q4_0", others=others)
    parsed = load_config(path)
    usual = (None, "int4-32", "int4-32", "int4-32")
    assert parsed.kept_kinds == (usual, (*usual[:3], "int8-32"))
    assert parsed.kept_head == "int8-32"
    factory = QuantLinears(torch.float32, torch.device("cpu"))
    decoder = build_decoder(parsed, open_weights(path, parsed), dtype=torch.float32, make_linear=factory)
    kinds = [
        tuple(each.kind if isinstance(each, QuantLinear) else None for each in (x.qkv, x.o, x.gate_up, x.down))
        for x in decoder.layers
    ]
    assert kinds == [usual, parsed.kept_kinds[1], usual]
    assert isinstance(decoder.head, QuantLinear)
    assert decoder.head.kind == parsed.kept_head
    for number, each in enumerate(parsed.kept_kinds):
        of_products = [job.weight for job in products_of(parsed, [1], layer_kind=number)]
        assert of_products == [*(kind or DENSE for kind in each), "int8-32"]


def test_a_file_without_kept_blocks_has_no_kinds(tmp_path: Path) -> None:
    config = tiny_config("qwen3")
    write_gguf(tmp_path / "model.gguf", config, tiny_tensors(config), "F16")
    parsed = load_config(tmp_path / "model.gguf")
    assert (parsed.kept_kinds, parsed.kept_head) == ((), None)
