"""Ceilings beside figures, on an H200's measured rates: shares as by hand, and what is beyond belief fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.qwen3_4b import CONFIG

from firsttoken.bench.model_costs import ModelCosts
from firsttoken.bench.records import Chunk, LoadSpec, RequestRecord, ScenarioResult
from firsttoken.bench.roofline import TOLERANCE, Roofline, judge_scenario
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.model.config import parse_config

WEIGHTS, KV, READ, PRODUCT = 8_044_936_192, 147_456, 4.41e12, 7.91e14
H200 = Ceilings("NVIDIA H200", READ, 4.1e12, PRODUCT)
COSTS = ModelCosts(weight_bytes=WEIGHTS, kv_bytes_per_token=KV, config=parse_config(CONFIG))
ROOFLINE = Roofline(COSTS, H200)


def request(
    number: int = 0,
    *,
    sent: float = 0.0,
    ttft: float,
    tpot: float,
    prompt: int = 32,
    output: int = 129,
    cached: int | None = 0,
    group: int = 1,
) -> RequestRecord:
    """A request whose chunks hold `group` tokens each."""
    chunks = [Chunk(sent + ttft + tpot * first, "x", group) for first in range(0, output, group)]
    return RequestRecord(
        id=str(number),
        scenario="s",
        phase="measured",
        stream=number,
        sent=sent,
        ended=chunks[-1].at,
        chunks=chunks,
        prompt_tokens=prompt,
        completion_tokens=output,
        cached_tokens=cached,
        token_source="server",
    )


def scenario(records: Sequence[RequestRecord], load: LoadSpec | None = None) -> ScenarioResult:
    return ScenarioResult(name="s", scenario="s", load=load or LoadSpec(concurrency=1), records=list(records))


def shares(records: Sequence[RequestRecord], roofline: Roofline = ROOFLINE) -> dict[str, float]:
    found, _ = judge_scenario(scenario(records), roofline)
    return {share.figure: share.share for share in found}


def levels(records: Sequence[RequestRecord], roofline: Roofline = ROOFLINE) -> list[str]:
    return [check.level for check in judge_scenario(scenario(records), roofline)[1]]


def test_a_lone_streams_step_reads_weights_and_its_own_context() -> None:
    floor = (WEIGHTS + KV * (32 + 129 / 2)) / READ
    found = shares([request(ttft=0.016, tpot=0.00359)])
    assert found["tpot"] == pytest.approx(floor / 0.00359, rel=1e-6)
    assert found["tpot"] == pytest.approx(0.51, abs=0.01)


def test_keys_and_values_count_as_long_as_the_context_was() -> None:
    seconds, bound = ROOFLINE.step(1, 32_768)
    assert seconds == pytest.approx((WEIGHTS + KV * 32_768) / READ)
    assert bound == "memory"
    assert seconds == pytest.approx(2.92e-3, rel=0.01)


def test_running_streams_share_one_read_of_the_weights() -> None:
    together = [request(i, ttft=0.02, tpot=0.004, prompt=512, output=257) for i in range(16)]
    floor = (WEIGHTS + 16 * KV * (512 + 257 / 2)) / READ
    found = shares(together)
    assert found["tpot"] == pytest.approx(floor / 0.004, rel=1e-6)
    one_by_one = [request(i, sent=2.0 * i, ttft=0.02, tpot=0.004, prompt=512, output=257) for i in range(16)]
    assert shares(one_by_one)["tpot"] == pytest.approx((WEIGHTS + KV * (512 + 257 / 2)) / READ / 0.004, rel=1e-6)


def test_streams_that_overlap_for_half_their_time_count_half() -> None:
    pair = [request(0, ttft=0.1, tpot=0.01, output=101), request(1, sent=0.5, ttft=0.1, tpot=0.01, output=101)]
    context = 32 + 101 / 2
    assert shares(pair)["tpot"] == pytest.approx((WEIGHTS + 1.5 * KV * context) / READ / 0.01, rel=1e-6)


def test_a_long_prompt_is_bound_by_arithmetic_and_a_short_one_by_memory() -> None:
    long, short = request(ttft=0.071, tpot=0.004, prompt=4096), request(ttft=0.016, tpot=0.004)
    flops = 7.27e9 * 4096 + 294_912 * 4096**2 + 0.78e9
    assert shares([long])["ttft"] == pytest.approx(flops / PRODUCT / 0.071, rel=0.001)
    assert shares([short])["ttft"] == pytest.approx(WEIGHTS / READ / 0.016, rel=1e-6)
    found, _ = judge_scenario(scenario([long]), ROOFLINE)
    assert {share.figure: share.bound for share in found} == {
        "ttft": "compute",
        "tpot": "memory",
        "output_tokens_per_s": "both",
    }


def test_a_cached_prompt_has_a_lower_floor() -> None:
    cached = request(ttft=0.0235, tpot=0.004, prompt=4096, cached=4080)
    assert shares([cached])["ttft"] == pytest.approx((WEIGHTS + KV * 4080) / READ / 0.0235, rel=1e-6)


def test_throughput_at_a_concurrency_is_bound_by_steps_that_serve_all_streams() -> None:
    records = [request(i, ttft=0.0, tpot=0.004, prompt=512, output=257) for i in range(16)]
    found, _ = judge_scenario(scenario(records), ROOFLINE)
    (rate,) = (share for share in found if share.figure == "output_tokens_per_s")
    assert rate.measured == pytest.approx(16 * 257 / (256 * 0.004), rel=1e-6)
    least = (256 * WEIGHTS + 16 * 256 * KV * (512 + 257 / 2)) / READ
    assert rate.ceiling == pytest.approx(16 * 257 / least, rel=0.01)
    assert rate.share == pytest.approx(rate.measured / rate.ceiling)


def test_a_figure_at_its_ceiling_is_believed_and_one_beyond_it_is_not() -> None:
    floor, _ = ROOFLINE.step(1, 32 + 129 / 2)
    at = request(ttft=0.01, tpot=floor)
    above = request(ttft=0.01, tpot=floor / (1 + 1.5 * TOLERANCE))
    assert levels([at]) == ["ok"]
    _, checks = judge_scenario(scenario([above]), ROOFLINE)
    assert "fail" in [check.level for check in checks]
    text = next(check.text for check in checks if check.level == "fail")
    assert text.startswith("Impossible: TPOT of 1.7")
    assert "8.04 GB of weights" in text
    assert "4.41 TB/s" in text


def test_a_ttft_faster_than_its_products_is_impossible_or_a_cache_nobody_told_of() -> None:
    fast = request(ttft=0.005, tpot=0.004, prompt=4096)
    silent = request(ttft=0.005, tpot=0.004, prompt=4096, cached=None)
    assert levels([fast]) == ["fail"]
    _, (check,) = judge_scenario(scenario([silent]), ROOFLINE)
    assert check.level == "flag"
    assert "cache may explain" in check.text


def burst(cached: int | None) -> list[RequestRecord]:
    """64 prompts answered within 1.3 s; their products alone take 6.5 s. Each one on its own would be possible."""
    return [request(i, ttft=0.5, tpot=0.003, prompt=8192, output=257, cached=cached) for i in range(64)]


def test_more_tokens_a_second_than_all_products_allow_is_impossible() -> None:
    _, (check,) = judge_scenario(scenario(burst(cached=0)), ROOFLINE)
    assert check.level == "fail"
    assert check.text.startswith("Impossible: output tok/s of")


def test_a_rate_that_an_untold_cache_could_explain_is_not_called_impossible() -> None:
    assert levels(burst(cached=None)) == ["ok"]
    assert levels(burst(cached=8191)) == ["ok"]


def test_several_tokens_a_step_lower_the_floor_when_said() -> None:
    record = request(ttft=0.01, tpot=0.001)
    assert "fail" in levels([record])
    assert levels([record], Roofline(COSTS, H200, tokens_per_step=2.5)) == ["ok"]


def test_grouped_tokens_are_no_speed_beyond_belief() -> None:
    floor, _ = ROOFLINE.step(1, 32 + 4)
    grouped = request(ttft=0.01 + 4 * floor, tpot=floor, output=8, group=4)  # two chunks, four steps apart
    assert levels([grouped]) == ["ok"]


def test_weights_that_the_processors_cache_can_hold_are_no_proof_of_a_wrong_figure() -> None:
    small = ModelCosts(weight_bytes=85e6)
    record = request(ttft=0.05, tpot=85e6 / 20e9 / 2)
    assert "fail" in levels([record], Roofline(small, Ceilings("CPU (2 threads)", read=20e9)))
    cached = Roofline(small, Ceilings("CPU (2 threads)", read=20e9, cache_bytes=480 << 20))
    assert levels([record], cached) == ["ok"]
    assert shares([record], cached)["tpot"] == pytest.approx(2.0)


def test_without_a_product_rate_the_prompt_has_no_ceiling() -> None:
    found = shares([request(ttft=0.05, tpot=0.01)], Roofline(COSTS, Ceilings("CPU (2 threads)", read=20e12)))
    assert found.keys() == {"tpot", "output_tokens_per_s"}


def test_an_open_loops_rate_is_said_to_be_held_to_its_arrivals() -> None:
    load = LoadSpec(rate=2.0, arrivals="poisson")
    found, _ = judge_scenario(scenario([request(ttft=0.01, tpot=0.004)], load), ROOFLINE)
    assert "held to its arrivals" in found[-1].text


@pytest.mark.parametrize("spoil", ["warm-up", "error", "uncounted", "empty"])
def test_only_whole_measured_and_counted_requests_have_ceilings(spoil: str) -> None:
    record = request(ttft=0.01, tpot=0.001)
    if spoil == "warm-up":
        record.phase = "warm-up"
    elif spoil == "error":
        record.error = "The connection was closed."
    elif spoil == "uncounted":
        record.completion_tokens, record.token_source = None, "none"
    else:
        record.chunks = []
    found, checks = judge_scenario(scenario([record]), ROOFLINE)
    assert found == []
    assert [check.level for check in checks] == ["ok"]
