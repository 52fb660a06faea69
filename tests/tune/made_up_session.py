"""A finished session with figures as a real one would have."""

from __future__ import annotations

from tests.bench.sides import run, scenario

from firsttoken.bench.compare import compare_pairs
from firsttoken.tune.records import Gain, Point, Row, Tuned
from firsttoken.tune.stats import Verdict


def row(label: str, verdict: Verdict | None, gain: float, *, kept: bool = False, refused: str = "") -> Row:
    knob, _, value = label.partition(" = ")
    measured = None if verdict is None else Gain(gain=gain, low=gain - 0.01, high=gain + 0.012, pairs=9)
    return Row(
        knob=knob,
        value=value,
        label=label,
        what="Tokens a step, <b>at most</b>.",
        what_zh="每步最多的 token 数。",
        verdict=verdict,
        numerics=knob == "quantization",
        kept=kept,
        confirmed=kept,
        measured=measured,
        predicted=gain * 1.2 if kept else None,
        prediction_zh="每步读取的字节为原来的 53%",
        prediction="a step reads 53% of the bytes" if kept else "not predicted: a roofline does not tell scheduling",
        quality="KL 0.004 nats a token" if kept else "",
        quality_zh="每 token 的 KL 为 0.004 nat" if kept else "",
        refused=refused,
        refused_zh="这里不可能有影响" if refused.startswith("cannot") else "",
    )


def made_up(kept: bool = True) -> Tuned:
    rows = [
        row("quantization = fp8", "helps", 0.41, kept=kept),
        row("enforce-eager = on", "hurts", -0.32),
        row("block-size = 32", "equivalent", 0.002),
        row("max-num-seqs = 64", "undecided", 0.013),
        row("quantization = int4", "helps", 0.6, refused="its answers are not as good"),
        row("kv-cache-dtype = fp8", None, 0.0, refused="cannot matter here: a step reads 99% of the bytes"),
    ]
    pairs = [
        (run(scenario(tpot=0.004 + 1e-5 * i)), run(scenario(tpot=0.0028 + 1e-5 * i, ttft=0.019, rate=4900)))
        for i in range(8)
    ]
    rates = {"baseline": (3500.0, 0.020), "quantization = fp8": (4900.0, 0.018), "enforce-eager = on": (2400.0, 0.031)}
    return Tuned(
        version="1",
        created=1.8e9,
        engine="firsttoken",
        model="Qwen/Qwen3-4B-Instruct-2507",
        machine={"gpu": "NVIDIA H200"},
        workload=[("Five-turn customer support", "五轮客服对话")],
        objective="tpot",
        slo={"ttft": 0.5},
        budget=1800.0,
        spent=1711.0,
        runs=74,
        noise=0.011,
        least=0.02,
        best_left=0.018,
        baseline={"max-num-seqs": 256},
        baseline_command="firsttoken serve Qwen/Qwen3-4B-Instruct-2507 --max-num-seqs 256",
        kept={"max-num-seqs": 256, "quantization": "fp8"} if kept else {"max-num-seqs": 256},
        command="firsttoken serve Qwen/Qwen3-4B-Instruct-2507 --max-num-seqs 256 --quantization fp8",
        config='max-num-seqs = 256\nquantization = "fp8"\n',
        config_name="config.toml",
        changed=["quantization = fp8"] if kept else [],
        why="" if kept else "No value of a knob looked better than the baseline in screening.",
        why_zh="" if kept else "筛选中没有任何取值看起来比基线更好。",
        fresh=Gain(gain=0.43, low=0.4, high=0.46, pairs=8) if kept else None,
        comparison=compare_pairs(pairs, ("before", "after")) if kept else None,
        rows=rows,
        failed=[("kv-cache-dtype = fp8, quantization = fp8", "the launched server ended: <out of memory>")],
        points=[
            Point(
                label=label,
                runs=9,
                figures={"output_tokens_per_s": rate, "ttft": ttft},
                kept=kept and "fp8" in label,
                baseline=label == "baseline",
            )
            for label, (rate, ttft) in rates.items()
        ],
        predictions_right=1,
        predictions_made=1,
        prediction_error=0.08,
    )
