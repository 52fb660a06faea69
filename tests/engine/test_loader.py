from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders import VOCAB_SIZE, tiny_config, tiny_model_folder, tiny_tensors, write_checkpoint, write_tokenizer
from tests.model.quant_files import awq, write_quantised

from firsttoken.config import EngineConfig
from firsttoken.engine.loader import load
from firsttoken.errors import ConfigError, ModelError, OutOfMemory
from firsttoken.kernels.cpu_ops import cpu_kernels
from firsttoken.types import EngineInfo, GenerateRequest, SamplingParams


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generation = {"temperature": 0.7, "top_k": 20}
    return tiny_model_folder(tmp_path_factory.mktemp("tiny"), "qwen3", generation=generation)


def config(folder: Path, **options: Any) -> EngineConfig:
    defaults: dict[str, Any] = {"device": "cpu", "dtype": "float32", "cpu_threads": 1}
    return EngineConfig(**(defaults | options), model="tiny", path=str(folder))


def info_of(folder: Path, **options: Any) -> EngineInfo:
    loaded = load(config(folder, **options), lambda phase, fraction: None)
    loaded.runner.close()
    return loaded.engine.info


def test_a_loaded_engine_answers_and_says_what_it_is(folder: Path) -> None:
    progress: list[tuple[str, float]] = []
    loaded = load(config(folder), lambda phase, fraction: progress.append((phase, fraction)))
    try:
        engine, info = loaded.engine, loaded.engine.info
        assert (info.model, info.architecture, info.device, info.dtype) == (
            "tiny",
            "Qwen3ForCausalLM",
            "cpu",
            "float32",
        )
        assert info.max_model_len == 1024
        assert info.token_id_limit < info.vocab_size == VOCAB_SIZE
        assert info.default_sampling == {"temperature": 0.7, "top_k": 20}
        assert info.kv_bytes_per_token == 2 * 2 * 2 * 32 * 4
        assert info.weight_bytes > 0
        assert list(info.phases) == ["config", "device", "weights", "kv", "warm-up"]
        fractions = [fraction for _, fraction in progress]
        assert fractions == sorted(fractions)
        assert 0 <= fractions[0] <= fractions[-1] <= 1

        sampling = SamplingParams(max_tokens=5, ignore_eos=True)
        engine.add(GenerateRequest(request_id="r", prompt_token_ids=[1, 2, 3], sampling=sampling))
        tokens: list[int] = []
        while engine.has_work:
            for output in engine.step():
                tokens += output.token_ids
        assert len(tokens) == 5
        engine.check()
    finally:
        loaded.runner.close()


def test_the_models_sampling_defaults_can_be_left_out(folder: Path) -> None:
    assert info_of(folder, generation_config="none").default_sampling == {}


def test_limits_are_taken_from_the_configuration(folder: Path) -> None:
    info = info_of(folder, max_model_len=300, max_num_seqs=3, block_size=8, kv_cache_memory=512 * 1024)
    assert (info.max_model_len, info.max_num_seqs, info.block_size) == (300, 3, 8)
    assert info.num_blocks == 512 * 1024 // (1024 * 8)


def test_random_weights_need_a_config_alone(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model", tiny_config("llama"), {})
    (checkpoint / "model.safetensors").unlink()
    assert info_of(checkpoint, load_format="dummy").token_id_limit == VOCAB_SIZE


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_model_len": 5000}, ConfigError, "1024 or less"),
        ({"max_model_len": 0}, ConfigError, "--max-model-len"),
        ({"block_size": 0}, ConfigError, "--block-size"),
        ({"max_num_seqs": 0}, ConfigError, "--max-num-seqs"),
        ({"max_num_seqs": 8, "max_num_batched_tokens": 4}, ConfigError, "--max-num-batched-tokens 4"),
        ({"gpu_memory_utilization": 1.5}, ConfigError, "--gpu-memory-utilization"),
        ({"max_step_ms": 0.0}, ConfigError, "--max-step-ms"),
        ({"cpu_threads": 0}, ConfigError, "--cpu-threads"),
        ({"kv_cache_memory": 1 << 50}, OutOfMemory, "does not fit"),
        ({"kv_cache_memory": 64 * 1024, "max_model_len": 512}, OutOfMemory, "--max-model-len 64 or less"),
        ({"quantization": "int4", "dtype": "bfloat16"}, ConfigError, "--dtype"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_cannot_work_is_refused_in_one_sentence(
    folder: Path, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    phases: list[str] = []
    with pytest.raises(error, match=text) as refused:
        load(config(folder, **options), lambda phase, fraction: phases.append(phase))
    assert "\n" not in str(refused.value)
    assert "weights" not in phases  # refused before anything large was read


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        load(replace(config(tmp_path), path=str(tmp_path / "none")), lambda phase, fraction: None)


def test_a_quantised_checkpoint_runs_and_is_not_rounded_twice(tmp_path: Path) -> None:
    raw = tiny_config(hidden_size=64, intermediate_size=128)
    published = awq(32)
    write_quantised(tmp_path, raw, tiny_tensors(raw), published)
    write_tokenizer(tmp_path)
    exact = info_of(tmp_path)  # widened, in float32
    assert exact.weight_bytes == 4 * (2 * (64 * 256 + 128 * 64 + 3 * 64 * 128) + VOCAB_SIZE * 64)
    with pytest.raises(ConfigError, match=r"quantised already \(awq\).*leave it out"):
        load(config(tmp_path, dtype="auto", quantization="int8"), lambda phase, fraction: None)
    if cpu_kernels() is not None:
        kept = info_of(tmp_path, dtype="auto")
        assert kept.weights.startswith("4-bit weights")
        assert kept.weight_bytes < exact.weight_bytes / 3.5
