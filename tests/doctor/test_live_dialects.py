"""What each engine calls its numbers, and what lies between two readings."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from firsttoken.doctor.live.dialects import read_metrics
from firsttoken.doctor.live.reading import EngineKind, Restarted, window
from firsttoken.errors import ConfigError
from firsttoken.server.metrics import EngineCollector
from firsttoken.wire import EngineStats
from tests.doctor.scripted_metrics import POOL, Scripted
from tests.engine.fake_engine import info


@pytest.mark.parametrize("engine", ["firsttoken", "vllm", "sglang"])
def test_the_same_load_reads_the_same_from_every_engine(engine: EngineKind) -> None:
    server = Scripted(
        engine=engine,
        step_s=0.01,
        running=10,
        waiting=3,
        context=1400,
        prompts_per_s=2,
        prompt_tokens=500,
        found=0.2,
        preempted_per_s=0.5,
        queue_s=0.3,
    )
    seen = window([read_metrics(server.text(t), at=t) for t in (0.0, 10.0)])
    assert (seen.running, seen.waiting) == (10, 3)
    assert seen.kv_usage == pytest.approx(0.02)
    assert seen.kv_tokens == POOL
    assert seen.added.generated == pytest.approx(10_000)
    assert seen.computed == pytest.approx(8000)
    assert seen.hit_rate == pytest.approx(0.2)
    assert seen.added.preempted == pytest.approx(5)
    assert seen.step_seconds == pytest.approx(0.01)
    assert seen.tpot == pytest.approx(0.01)
    assert seen.ttft == pytest.approx(0.1)
    assert seen.queue_time == pytest.approx(0.3)
    assert seen.streams == pytest.approx(10)


def test_engines_of_one_vllm_are_added_up_and_their_caches_use_averaged() -> None:
    text = """
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_running{engine="1"} 4
vllm:kv_cache_usage_perc{engine="0"} 0.2
vllm:kv_cache_usage_perc{engine="1"} 0.6
vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="100"} 1
vllm:cache_config_info{engine="1",block_size="16",num_gpu_blocks="100"} 1
"""
    seen = read_metrics(text, at=0.0)
    assert (seen.running, seen.kv_tokens) == (7, 3200)
    assert seen.kv_usage == pytest.approx(0.4)


def test_an_older_vllms_names_are_known() -> None:
    text = """
vllm:num_requests_running{model_name="m"} 3
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:gpu_prefix_cache_queries_total{model_name="m"} 100
vllm:gpu_prefix_cache_hits_total{model_name="m"} 40
vllm:time_per_output_token_seconds_sum{model_name="m"} 4
vllm:time_per_output_token_seconds_count{model_name="m"} 400
"""
    seen = read_metrics(text, at=0.0)
    assert (seen.kv_usage, seen.totals.looked_up, seen.totals.found) == (0.5, 100, 40)
    assert (seen.totals.gap_seconds, seen.totals.gaps) == (4, 400)


def test_firsttoken_under_vllms_prefix_is_still_firsttoken() -> None:
    text = Scripted(engine="firsttoken", step_s=0.01).text(1.0).replace("firsttoken:", "vllm:")
    seen = read_metrics(text, at=0.0)
    assert seen.engine == "firsttoken"
    assert seen.totals.busy_seconds == pytest.approx(51)


def test_a_counter_that_goes_back_means_another_server() -> None:
    server = Scripted(engine="vllm", step_s=0.01)
    with pytest.raises(Restarted):
        window([read_metrics(server.text(60.0), at=0.0), read_metrics(server.text(1.0), at=10.0)])


def test_a_series_that_begins_within_the_window_counts_whole() -> None:
    before = read_metrics("sglang:num_running_reqs 0\n", at=0.0)
    after = read_metrics('sglang:num_running_reqs 1\nsglang:realtime_tokens_total{mode="decode"} 40\n', at=1.0)
    assert window([before, after]).added.generated == 40


@pytest.mark.parametrize("text", ["process_cpu_seconds_total 3.0\n", "", "<html>{", "a{b= 1"])
def test_other_texts_are_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_metrics(text, at=0.0)
    assert "\n" not in str(refused.value)


def test_an_fp8_cache_is_seen_in_firsttokens_own_metrics() -> None:
    stats = EngineStats(gauges={"num_requests_running": 0.0})

    def read(kv_dtype: str) -> bool:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(EngineCollector("firsttoken", "m", "ready", info(kv_dtype=kv_dtype), stats))
        return read_metrics(generate_latest(registry).decode(), at=0.0).kv_in_8_bits

    assert read("FP8 (E4M3), a scale a head")
    assert not read("")
