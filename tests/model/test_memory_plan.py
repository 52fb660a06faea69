from __future__ import annotations

import re
from dataclasses import replace

import pytest

from firsttoken.errors import ConfigError, OutOfMemory
from firsttoken.model.config import ModelConfig
from firsttoken.model.cost import weight_bytes
from firsttoken.model.memory_plan import GIB, Demand, DeviceMemory, batch_limits, plan_memory

QWEN3_4B = ModelConfig(
    architecture="Qwen3ForCausalLM",
    hidden_size=2560,
    num_layers=36,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    intermediate_size=9728,
    vocab_size=151_936,
    rms_norm_eps=1e-6,
    qk_norm=True,
    tie_word_embeddings=True,
    rope_theta=5e6,
    max_position_embeddings=262_144,
)
DEMAND = Demand(
    model="Qwen3-4B",
    config=QWEN3_4B,
    weight_bytes=weight_bytes(QWEN3_4B),
    element_bytes=2,
    kv_element_bytes=2,
    max_num_seqs=64,
    max_num_batched_tokens=2048,
    block_size=16,
    max_model_len=None,
    kv_cache_memory=None,
    graphs=True,
)


def card(gib: float, utilization: float = 0.9, used: float = 0.0) -> DeviceMemory:
    total = int(gib * GIB)
    return DeviceMemory(kind="cuda", total=total, free=total - int(used * GIB), utilization=utilization)


def test_a_24_gb_card_holds_the_4b_model_and_a_long_context() -> None:
    plan = plan_memory(DEMAND, card(24))
    assert plan.weight_bytes == pytest.approx(8.04e9, rel=0.01)
    assert 80_000 < plan.max_model_len < 100_000
    assert plan.kv_bytes == plan.kv_tokens * 147_456
    assert plan.kv_bytes + plan.weight_bytes + plan.activation_bytes + plan.runtime_bytes <= 0.9 * 24 * GIB
    assert plan_memory(replace(DEMAND, max_model_len=32_768), card(24)).max_model_len == 32_768


def test_a_12_gb_card_holds_the_4b_model_and_8k_tokens() -> None:
    plan = plan_memory(DEMAND, card(12))
    assert plan.max_model_len >= 8192
    assert plan.kv_tokens < 20_000


def test_auto_is_at_most_what_the_model_is_made_for() -> None:
    plan = plan_memory(DEMAND, card(140))
    assert plan.max_model_len == 262_144
    assert plan.kv_tokens > 262_144


def test_a_context_that_does_not_fit_is_refused_with_the_numbers_and_one_that_works() -> None:
    with pytest.raises(OutOfMemory) as refused:
        plan_memory(replace(DEMAND, max_model_len=131_072), card(24))
    text = str(refused.value)
    assert "18.00 GiB" in text
    found = re.search(r"--max-model-len (\d+)", text)
    assert found is not None
    assert plan_memory(replace(DEMAND, max_model_len=int(found[1])), card(24)).max_model_len == int(found[1])


def test_small_amounts_are_told_in_mib() -> None:
    demand = replace(DEMAND, max_model_len=4096, kv_cache_memory=48 << 20, weight_bytes=80 << 20)
    with pytest.raises(OutOfMemory, match=r"needs 0\.56 GiB .* there are 48\.00 MiB beside .* \(80\.00 MiB\)"):
        plan_memory(demand, card(24))


@pytest.mark.parametrize("memory", [card(24, utilization=0.3), card(24, utilization=0.34)])
def test_a_share_too_small_for_the_weights_names_one_that_works(memory: DeviceMemory) -> None:
    with pytest.raises(OutOfMemory) as refused:
        plan_memory(DEMAND, memory)
    found = re.search(r"--gpu-memory-utilization (0\.\d+)", str(refused.value))
    assert found is not None
    assert plan_memory(DEMAND, replace(memory, utilization=float(found[1]))).max_model_len >= 256


def test_batches_too_large_for_a_card_name_a_size_that_works() -> None:
    demand = replace(DEMAND, max_num_seqs=1024)
    with pytest.raises(OutOfMemory) as refused:
        plan_memory(demand, card(11.2, utilization=0.97))
    found = re.search(r"--max-num-seqs (\d+)", str(refused.value))
    assert found is not None
    assert plan_memory(replace(demand, max_num_seqs=int(found[1])), card(11.2, utilization=0.97)).num_blocks > 0


def test_a_card_that_others_fill_says_so() -> None:
    with pytest.raises(OutOfMemory, match="other programs"):
        plan_memory(DEMAND, card(24, used=20))


def test_a_card_smaller_than_the_weights_is_refused() -> None:
    with pytest.raises(OutOfMemory, match=r"7\.49 GiB.*smaller model"):
        plan_memory(DEMAND, card(8))


def test_kv_bytes_given_outright_win_over_the_share() -> None:
    plan = plan_memory(replace(DEMAND, kv_cache_memory=2 * GIB), card(24))
    assert plan.kv_bytes <= 2 * GIB < plan.kv_bytes + DEMAND.block_bytes
    assert plan.max_model_len == plan.kv_tokens
    assert plan_memory(replace(DEMAND, kv_cache_memory=14 * GIB), card(24)).kv_bytes > 13.9 * GIB
    with pytest.raises(OutOfMemory, match="does not fit"):
        plan_memory(replace(DEMAND, kv_cache_memory=20 * GIB), card(24))
    with pytest.raises(OutOfMemory, match="at least"):
        plan_memory(replace(DEMAND, kv_cache_memory=1000), card(24))


def test_a_context_longer_than_the_models_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"262144 or less.*--rope-scaling"):
        plan_memory(replace(DEMAND, max_model_len=300_000), card(140))


def test_a_cpu_gives_a_quarter_of_what_is_free_and_4_gib_at_most() -> None:
    roomy = DeviceMemory(kind="cpu", total=64 * GIB, free=60 * GIB)
    assert 3.99 * GIB < plan_memory(DEMAND, roomy).kv_bytes <= 4 * GIB
    tight = DeviceMemory(kind="cpu", total=16 * GIB, free=14 * GIB)
    plan = plan_memory(DEMAND, tight)
    assert plan.kv_bytes < 1.7 * GIB
    longer = plan_memory(replace(DEMAND, max_model_len=32_768), tight)  # asked for outright, so it gets the room
    assert longer.kv_tokens >= 32_768
    with pytest.raises(OutOfMemory, match="smaller model"):
        plan_memory(DEMAND, DeviceMemory(kind="cpu", total=16 * GIB, free=6 * GIB))


def test_steps_grow_with_the_card_and_follow_what_is_asked_for() -> None:
    sizes = [batch_limits("cuda", gib * GIB) for gib in (12, 24, 80)]
    assert sizes == [(64, 4096), (128, 8192), (256, 32_768)]
    assert batch_limits("cpu", 0) == (32, 2048)
    assert batch_limits("cuda", 12 * GIB, seqs=5000) == (5000, 5000)
    assert batch_limits("cuda", 12 * GIB, tokens=16) == (16, 16)
    with pytest.raises(ConfigError, match="at least --max-num-seqs 32"):
        batch_limits("cuda", 12 * GIB, seqs=32, tokens=16)
