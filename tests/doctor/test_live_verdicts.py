"""The verdict on servers with a planted bottleneck, and what it rests on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firsttoken.doctor.live.diagnosis import Diagnosis, diagnose
from firsttoken.doctor.live.dialects import read_metrics
from firsttoken.doctor.live.reading import window
from firsttoken.doctor.live.sensed import Sensed
from firsttoken.doctor.live.work import Bounds
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.machine.gpu_sensors import GpuLimits
from tests.doctor.scripted_metrics import BOUNDS, COSTS, H200, Scripted


def diagnosed(server: Scripted, bounds: Bounds = BOUNDS, sensors: Sensed | None = None) -> Diagnosis:
    return diagnose(window([read_metrics(server.text(t), at=t) for t in (0.0, 5.0, 10.0)]), bounds, sensors)


LIMITS = GpuLimits(max_sm_clock_mhz=1980, power_limit_w=700, power_default_w=700)
FINE = Sensed(kernels=0.98, sm_clock_mhz=1980, limits=LIMITS, power_w=420, temperature_c=50)
HOT = replace(FINE, sm_clock_mhz=1200, temperature_c=87, held_back={"hardware thermal slowdown": 0.9})
CAPPED = replace(
    FINE,
    sm_clock_mhz=1600,
    power_w=398,
    limits=replace(LIMITS, power_limit_w=400),
    held_back={"software power cap": 1.0},
)
# As the H200 itself was read, at its default limit.
READ_AT_ONE = replace(FINE, kernels=1.0, sm_clock_mhz=1972, power_w=620, held_back={"software power cap": 0.5})
READ_AT_32K = replace(FINE, kernels=0.96, sm_clock_mhz=1830, power_w=657, held_back={"software power cap": 0.71})
READ_AT_256 = replace(FINE, kernels=1.0, sm_clock_mhz=1753, power_w=685, held_back={"software power cap": 1.0})

# Times of steps are those that were measured on the H200, or what such a fault makes of them.
PLANTED = {
    "vLLM, one stream": (
        "memory-bound",
        Scripted(engine="vllm", step_s=0.00359),
        FINE,
    ),
    "firsttoken, one stream": ("memory-bound", Scripted(engine="firsttoken", step_s=0.00225), FINE),
    "SGLang, 64 streams": ("memory-bound", Scripted(engine="sglang", step_s=0.0065, running=64), None),
    "vLLM, prompts of 32K": (
        "compute-bound",
        Scripted(engine="vllm", step_s=0.24, prompts_per_s=1.03, prompt_tokens=32768, context=32768),
        FINE,
    ),
    "firsttoken, prompts of 4K": (
        "compute-bound",
        Scripted(engine="firsttoken", step_s=0.06, running=4, prompts_per_s=16, prompt_tokens=4096, context=4096),
        None,
    ),
    "SGLang, prompts of 4K": (
        "compute-bound",
        Scripted(engine="sglang", step_s=0.06, running=4, prompts_per_s=14, prompt_tokens=4096, context=4096),
        None,
    ),
    "vLLM, eager and slow host code": (
        "host-bound",
        Scripted(engine="vllm", step_s=0.033),
        replace(FINE, kernels=0.35),
    ),
    "vLLM, eager and no sensors": ("host-bound", Scripted(engine="vllm", step_s=0.033), None),
    "SGLang, without graphs": ("host-bound", Scripted(engine="sglang", step_s=0.020, eager=True), None),
    "SGLang, a scheduler that dawdles": (
        "host-bound",
        Scripted(engine="sglang", step_s=0.006, running=8, device_share=0.4),
        None,
    ),
    "firsttoken, a scheduler that dawdles": (
        "host-bound",
        Scripted(engine="firsttoken", step_s=0.012, running=16, wait_share=0.02, waiting=30),
        FINE,
    ),
    "vLLM, eight slots for fifty": (
        "queue-bound",
        Scripted(engine="vllm", step_s=0.0036, running=8, waiting=42, prompts_per_s=5, prompt_tokens=200, queue_s=4.0),
        FINE,
    ),
    "SGLang, eight slots for fifty": (
        "queue-bound",
        Scripted(engine="sglang", step_s=0.0036, running=8, waiting=42, queue_s=4.0),
        None,
    ),
    "vLLM, a full cache": (
        "KV-bound",
        Scripted(engine="vllm", step_s=0.02, running=40, waiting=25, context=17_000, kv_usage=0.97),
        FINE,
    ),
    "SGLang, retractions": (
        "KV-bound",
        Scripted(engine="sglang", step_s=0.02, running=40, context=15_000, preempted_per_s=0.6),
        None,
    ),
    "firsttoken, preemptions": (
        "KV-bound",
        Scripted(engine="firsttoken", step_s=0.02, running=40, context=15_000, preempted_per_s=0.6, waiting=2),
        None,
    ),
    "vLLM, too hot": ("throttled", Scripted(engine="vllm", step_s=0.006), HOT),
    "firsttoken, a power limit too low": (
        "throttled",
        Scripted(engine="firsttoken", step_s=0.12, running=4, prompts_per_s=8, prompt_tokens=4096),
        CAPPED,
    ),
    "SGLang, nothing to do": ("idle", Scripted(engine="sglang", step_s=0.004, running=0, active=0), None),
    "firsttoken, a client that thinks": (
        "idle",
        Scripted(engine="firsttoken", step_s=0.00225, active=0.15),
        replace(FINE, kernels=0.15),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_bottleneck_is_named_with_evidence_and_a_change(name: str) -> None:
    verdict, server, sensors = PLANTED[name]
    found = diagnosed(server, sensors=sensors)
    assert found.finding.verdict == verdict, found.finding.evidence
    assert any(char.isdigit() for char in found.finding.evidence[0])
    assert found.remedy.change


@pytest.mark.parametrize(
    ("server", "sensors", "verdict"),
    [
        (Scripted(engine="firsttoken", step_s=0.00219, context=160), READ_AT_ONE, "memory-bound"),
        (Scripted(engine="firsttoken", step_s=0.00583, running=64, context=640), FINE, "memory-bound"),
        (
            Scripted(engine="firsttoken", step_s=0.943, prompts_per_s=1.06, prompt_tokens=32768, context=32768),
            READ_AT_32K,
            "compute-bound",
        ),
        (
            Scripted(
                engine="firsttoken",
                step_s=0.0172,
                running=256,
                context=640,
                prompts_per_s=54,
                prompt_tokens=512,
            ),
            READ_AT_256,
            "memory-bound",  # by a hair, as the benchmark said: beside each token two of a prompt are computed
        ),
    ],
)
def test_what_an_h200_did_at_its_default_power_limit_is_no_throttling(
    server: Scripted, sensors: Sensed, verdict: str
) -> None:
    assert diagnosed(server, sensors=sensors).finding.verdict == verdict


def test_a_step_that_reads_weights_gains_what_half_of_them_would_save() -> None:
    found = diagnosed(Scripted(engine="firsttoken", step_s=0.00225))
    saved = COSTS.weight_bytes / 2 / 4.41e12
    assert found.remedy.gain == pytest.approx(0.00225 / (0.00225 - saved))
    assert "--quantization fp8" in found.remedy.change


def test_a_step_that_reads_long_contexts_gains_from_a_smaller_cache() -> None:
    found = diagnosed(Scripted(engine="sglang", step_s=0.03, running=40, context=15_000))
    assert found.finding.verdict == "memory-bound"
    assert "--kv-cache-dtype fp8_e4m3" in found.remedy.change
    assert found.remedy.gain == pytest.approx(0.03 / (0.03 - 40 * 15_000 * COSTS.kv_bytes_per_token / 2 / 4.41e12))


def test_slots_are_raised_to_what_waits_and_the_gain_counts_the_longer_step() -> None:
    found = diagnosed(Scripted(engine="vllm", step_s=0.0036, running=8, waiting=42))
    assert "--max-num-seqs to 50" in found.remedy.change
    longer = 42 * 600 * COSTS.kv_bytes_per_token / 4.41e12
    assert found.remedy.gain == pytest.approx(50 / 8 * 0.0036 / (0.0036 + longer))


def test_slots_are_raised_no_further_than_the_cache_holds() -> None:
    found = diagnosed(Scripted(engine="vllm", step_s=0.02, running=20, waiting=200, context=14_000, kv_usage=0.4))
    assert "--max-num-seqs to 47" in found.remedy.change  # 20 / 0.4 with a twentieth left


def test_steps_that_are_full_and_slots_that_are_not_want_longer_steps() -> None:
    server = Scripted(engine="firsttoken", step_s=0.02, running=8, waiting=42)
    assert "--max-step-ms" in diagnosed(server, replace(BOUNDS, slots=32)).remedy.change
    assert "--max-num-seqs to 50" in diagnosed(server, replace(BOUNDS, slots=8)).remedy.change


@pytest.mark.parametrize(
    ("weights", "bits"),
    [
        ("bfloat16, which this GPU is fast in", 16),
        ("4-bit weights, int8 activations by row, fastest here; --dtype float32 is exact", 4),
        ("fp8 weights with a scale for each row, rounded at load; bfloat16, which this GPU is fast in", 8),
        ("int4 weights with a scale for each 128 inputs, bfloat16", 4),
        ("float32, the exact mode", 32),
    ],
)
def test_the_weights_bits_are_read_from_the_servers_words(weights: str, bits: int) -> None:
    assert Bounds(weights=weights).weight_bits == bits


def test_weights_of_4_bits_are_not_to_be_halved() -> None:
    four = Bounds(costs=replace(COSTS, weight_bytes=COSTS.weight_bytes / 4), ceilings=H200, weights="4-bit weights")
    found = diagnosed(Scripted(engine="firsttoken", step_s=0.001), four)
    assert "Nothing to tune" in found.remedy.change


def test_a_full_cache_in_8_bits_wants_memory_or_fewer_sequences() -> None:
    server = Scripted(engine="vllm", step_s=0.02, running=40, waiting=25, context=17_000, kv_usage=0.97)
    eight_bits = window(
        [read_metrics(server.text(t).replace('cache_dtype="auto"', 'cache_dtype="fp8"'), at=t) for t in (0.0, 10.0)]
    )
    assert "--gpu-memory-utilization" in diagnose(eight_bits, BOUNDS).remedy.change


def test_a_host_that_is_too_slow_gains_at_most_the_way_to_the_ceiling() -> None:
    found = diagnosed(Scripted(engine="sglang", step_s=0.020, eager=True))
    floor = (COSTS.weight_bytes + 600 * COSTS.kv_bytes_per_token) / 4.41e12
    assert found.remedy.gain == pytest.approx(0.020 / floor)
    assert found.remedy.at_most
    assert "--disable-cuda-graph" in found.remedy.change


def test_products_in_fp8_gain_what_the_cards_own_rates_say() -> None:
    server = Scripted(engine="vllm", step_s=0.24, prompts_per_s=1.03, prompt_tokens=32768, context=32768)
    with_fp8 = diagnosed(server, replace(BOUNDS, ceilings=replace(H200, fp8_product=1400e12)))
    without = diagnosed(server, BOUNDS)  # the card has no FP8, or nobody measured it
    assert "--quantization fp8" in with_fp8.remedy.change
    assert with_fp8.remedy.gain is not None
    assert 1.4 < with_fp8.remedy.gain < 791 / 1400 * 4
    assert "Put what prompts share first" in without.remedy.change


def test_prompts_that_are_looked_up_in_no_cache_want_one() -> None:
    server = Scripted(engine="vllm", step_s=0.24, prompts_per_s=1.03, prompt_tokens=32768, context=32768)
    texts = ["\n".join(line for line in server.text(t).splitlines() if "prefix_cache" not in line) for t in (0.0, 10.0)]
    found = diagnose(window([read_metrics(text, at=t) for text, t in zip(texts, (0.0, 10.0), strict=True)]), BOUNDS)
    assert found.finding.verdict == "compute-bound"
    assert "prefix cache on" in found.remedy.change


def test_more_than_the_ceiling_is_called_impossible() -> None:
    found = diagnosed(Scripted(engine="firsttoken", step_s=0.0012))
    assert "beyond the ceiling" in found.finding.evidence[-1]


def test_vllms_own_estimates_need_no_config() -> None:
    server = Scripted(engine="vllm", step_s=0.00359, mfu_metrics=True)
    found = diagnosed(server, Bounds(ceilings=H200))
    load = found.finding.load
    assert found.finding.verdict == "memory-bound"
    assert load is not None
    assert load.memory_share == pytest.approx((COSTS.weight_bytes + 600 * COSTS.kv_bytes_per_token) / 4.41e12 / 0.00359)
    assert found.remedy.gain is None  # how much of it the weights are is not known


@pytest.mark.parametrize(("running", "verdict"), [(4.0, "memory-bound"), (400.0, "compute-bound")])
def test_without_model_and_ceilings_tokens_a_step_decide_and_it_says_so(running: float, verdict: str) -> None:
    found = diagnosed(Scripted(engine="vllm", step_s=0.02, running=running, context=100), Bounds())
    assert found.finding.verdict == verdict
    assert "cannot be told" in found.finding.evidence[0]


def test_a_cpu_whose_memory_is_not_what_it_waits_for_computes() -> None:
    cpu = Bounds(costs=COSTS, ceilings=Ceilings("CPU (2 threads)", read=20e9))
    found = diagnosed(Scripted(engine="firsttoken", step_s=4.0, running=16), cpu)
    assert found.finding.verdict == "compute-bound"
    assert "waited for the device" in found.finding.evidence[0]


def test_a_cpu_without_ceilings_is_undecided_and_says_what_to_measure() -> None:
    blind = Bounds(costs=COSTS, on_cpu=True, missing=("No ceilings: nobody has measured this machine.",))
    found = diagnosed(Scripted(engine="firsttoken", step_s=0.04), blind)
    assert found.finding.verdict == "undecided"
    assert "firsttoken doctor ceilings" in found.remedy.change


def test_a_full_cache_of_a_cpu_wants_memory() -> None:
    server = Scripted(engine="firsttoken", step_s=0.2, running=4, preempted_per_s=0.5)
    assert "--kv-cache-memory" in diagnosed(server, replace(BOUNDS, on_cpu=True)).remedy.change


def test_a_running_server_whose_steps_never_end_is_undecided() -> None:
    stuck = Scripted(engine="vllm", step_s=0.01)
    reading = read_metrics(stuck.text(0.0), at=0.0)
    found = diagnose(window([reading, replace(reading, at=10.0)]), Bounds(missing=("No ceilings: none known.",)))
    assert found.finding.verdict == "undecided"
    assert found.finding.evidence[-1] == "No ceilings: none known."


def test_a_verdict_is_json_with_every_figure_named() -> None:
    told = diagnosed(Scripted(engine="firsttoken", step_s=0.00225), sensors=FINE).as_json()
    assert told["verdict"] == "memory-bound"
    assert told["figures"]["memory_share"] == pytest.approx(0.82, abs=0.01)
    assert told["figures"]["decode_tokens_per_s"] == pytest.approx(1 / 0.00225)
    assert told["figures"]["gpu_sm_clock_mhz"] == 1980
