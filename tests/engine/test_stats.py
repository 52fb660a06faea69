from __future__ import annotations

import pytest
from tests.engine.paged_runner import bench, request

from firsttoken.engine.stats import EngineCounters, one_two_five
from firsttoken.engine.work_cost import WorkCost
from firsttoken.wire import Histogram

PROMPT = [1, 2, 3, 4, 5]


def test_histograms_are_cumulative_as_the_wire_wants_them() -> None:
    counters = EngineCounters(100)
    plain = Histogram(one_two_five(100), [0] * 8)
    for tokens in (1, 2, 3, 3, 1000):
        plain.observe(tokens)
        counters._prompt.observe(tokens)
    assert counters.read(running=0, waiting=0, kv_cache_usage=0).histograms["request_prompt_tokens"] == plain


def test_token_bounds_end_at_the_context() -> None:
    assert one_two_five(120) == [1, 2, 5, 10, 20, 50, 100]


def test_latencies_of_one_request_are_counted_from_its_arrival() -> None:
    run = bench()
    run.engine.add(request("r", PROMPT, arrival=run.clock.now - 1, max_tokens=4, ignore_eos=True))
    run.run()
    read = run.engine.stats().histograms
    # Steps at .01, .02, ...: launched at .01; collected at .02, .03, .04, .05.
    expected = {
        "time_to_first_token_seconds": (1, 1.02),
        "inter_token_latency_seconds": (3, 0.03),
        "request_time_per_output_token_seconds": (1, 0.01),
        "e2e_request_latency_seconds": (1, 1.05),
        "request_queue_time_seconds": (1, 1.01),
        "request_prefill_time_seconds": (1, 0.01),
        "request_decode_time_seconds": (1, 0.03),
        "request_inference_time_seconds": (1, 0.04),
        "request_prompt_tokens": (1, 5),
        "request_generation_tokens": (1, 4),
        "request_max_num_generation_tokens": (1, 4),
        "request_params_n": (1, 1),
        "request_params_max_tokens": (1, 4),
        "iteration_tokens_total": (4, 5 + 3),
    }
    assert {name: (h.counts[-1], round(h.total, 6)) for name, h in read.items()} == expected


def test_counters_count_tokens_and_a_prompt_once_a_request() -> None:
    run = bench()
    run.engine.add(request("r", PROMPT, n=3, max_tokens=4, ignore_eos=True))
    run.run()
    assert run.counter("prompt_tokens_total") == 5
    assert run.counter("generation_tokens_total") == 12
    assert run.counter("prefix_cache_queries_total") == 15
    assert run.counter("prefix_cache_hits_total") == 8


def test_busy_time_runs_from_a_bursts_first_step_to_its_last_result() -> None:
    run = bench()
    run.engine.add(request("r", PROMPT, max_tokens=4, ignore_eos=True))
    run.run()
    assert run.counter("engine_busy_seconds_total") == pytest.approx(0.04)  # begun at .01, collected at .05
    run.clock.now += 60
    run.engine.add(request("later", PROMPT, max_tokens=4, ignore_eos=True))
    run.run()
    assert run.counter("engine_busy_seconds_total") == pytest.approx(0.08)


def test_only_the_wait_for_the_device_counts_as_waiting() -> None:
    run = bench(device_seconds=0.5)
    run.engine.add(request("r", PROMPT, max_tokens=2, ignore_eos=True))
    run.run()
    assert run.counter("engine_device_wait_seconds_total") == pytest.approx(1.0)
    assert run.counter("engine_busy_seconds_total") == pytest.approx(1.0 + 0.02)


def test_read_bytes_and_flops_are_those_of_each_steps_shapes() -> None:
    cost = WorkCost(step_bytes=1000, context_bytes=10, token_flops=100, sample_flops=7, pair_flops=1)
    run = bench(work_cost=cost)
    run.engine.add(request("r", PROMPT, max_tokens=2, ignore_eos=True))
    run.run()
    prompt = (1000 + 5 * 10, 5 * 100 + 7 + 5 * 5 // 2)
    decode = (1000 + 6 * 10, 100 + 7 + 6)
    assert run.counter("estimated_read_bytes_per_gpu_total") == prompt[0] + decode[0]
    assert run.counter("estimated_flops_per_gpu_total") == prompt[1] + decode[1]


def test_what_was_asked_for_counts_once_a_request_when_its_last_sequence_ends() -> None:
    run = bench()
    run.engine.add(request("r", PROMPT, n=3, max_tokens=4, ignore_eos=True))
    run.engine.stop("r", 2)
    assert run.engine.stats().histograms["request_params_n"].counts[-1] == 0
    run.run()
    run.engine.add(request("open", PROMPT, max_tokens=None))
    run.engine.abort("open")
    read = run.engine.stats().histograms
    expected = {
        "request_params_n": (2, 3 + 1),
        "request_params_max_tokens": (1, 4),
        "request_max_num_generation_tokens": (2, 4 + 0),  # the longest of three, then none
    }
    assert {name: (read[name].counts[-1], read[name].total) for name in expected} == expected


def test_finished_requests_are_counted_by_reason() -> None:
    run = bench()
    for name in ("length", "abort", "stop", "error"):
        run.engine.add(request(name, PROMPT, max_tokens=3, ignore_eos=True))
        if name == "abort":
            run.engine.abort(name)
        if name == "stop":
            run.engine.stop(name, 0)
        if name == "error":
            run.runner.fail_steps[len(run.runner.plans)] = "No."
        run.run()
    assert run.engine.stats().finished == {"stop": 1, "length": 1, "abort": 1, "error": 1}


def test_gauges_follow_what_runs_and_waits() -> None:
    run = bench(max_num_seqs=1)
    run.engine.add(request("a", PROMPT, max_tokens=3, ignore_eos=True))
    run.engine.add(request("b", PROMPT, max_tokens=3, ignore_eos=True))
    assert run.gauge("num_requests_waiting") == 2
    run.step()
    assert (run.gauge("num_requests_running"), run.gauge("num_requests_waiting")) == (1, 1)
    assert run.gauge("kv_cache_usage_perc") == pytest.approx(2 / 64)
    run.run()
    assert set(run.engine.stats().gauges.values()) == {0}
