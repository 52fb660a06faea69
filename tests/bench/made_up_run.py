"""A run of made-up, plausible figures in the shape that a real one has: what reports are tested on."""

from __future__ import annotations

import random
from collections.abc import Sequence

from firsttoken.bench.metrics import measure, measure_groups
from firsttoken.bench.records import (
    CeilingShare,
    Check,
    Chunk,
    LoadSpec,
    RequestRecord,
    RunResult,
    Sample,
    ScenarioResult,
    ServerIdentity,
)

SLO = {"ttft": 0.5, "tpot": 0.05}


def made_up_run(*, sweep: Sequence[int] = (1, 2, 4, 8), checks: Sequence[Check] = ()) -> RunResult:
    """Four scenarios, among them a sweep and one of two groups, with a GPU's samples beside them."""
    draw = random.Random(7)
    scenarios = [
        scenario("quicksort", LoadSpec(concurrency=1, requests=6, warm_up=1), draw, ttft=0.016, tpot=0.0036),
        scenario("blurbs", LoadSpec(concurrency=10, requests=40), draw, ttft=0.031, tpot=0.0041),
        *(
            scenario(
                f"sweep@{n}",
                LoadSpec(concurrency=n, requests=4 * n),
                draw,
                ttft=0.02 + 0.004 * n,
                tpot=0.0036 * (1 + n / 40),
                sweep="concurrency",
            )
            for n in sweep
        ),
        intruder(draw),
    ]
    at = scenarios[0].started
    for one in scenarios[1:]:
        shift(one, at := at + 5.0)
    scenarios[0].checks = list(checks)
    return RunResult(
        created=1_790_000_000.0,
        version="0.1.0",
        command=["firsttoken", "bench", "run", "--url", "http://127.0.0.1:8000"],
        url="http://127.0.0.1:8000",
        model="Qwen3-4B-Instruct-2507",
        seed=41,
        server=ServerIdentity(kind="firsttoken", version="0.1.0", model="Qwen3-4B-Instruct-2507", max_model_len=40960),
        machine={"gpu": "NVIDIA H200", "driver": "580.95.05", "cores": 16, "memory": 137438953472.0},
        ceilings={"read_bytes_per_s": 4.41e12, "product_flops_per_s": 7.91e14},
        ready_seconds=6.31,
        client_ceiling=61_000.0,
        client_processes=2,
        scenarios=scenarios,
        samples=samples(scenarios[0].started, 40.0, draw),
        absent=["gpu0: this card has no sensor for energy_j."],
        checks=[Check(name="client", level="ok", text="The client can read 61,000 chunks/s and read 2,400.")],
    )


def scenario(
    name: str, load: LoadSpec, draw: random.Random, *, ttft: float, tpot: float, sweep: str | None = None
) -> ScenarioResult:
    slots = [1000.0] * (load.concurrency or 1)
    records = []
    for number in range((load.requests or 1) + load.warm_up):
        stream = min(range(len(slots)), key=lambda slot: slots[slot])
        record = request(
            f"{name}-{number}", name, slots[stream], ttft * draw.lognormvariate(0, 0.15), tpot, 48, draw, stream=stream
        )
        if number < load.warm_up:
            record.phase = "warm-up"
        slots[stream] = record.ended + 0.0005
        records.append(record)
    metrics = measure(records, SLO)
    return ScenarioResult(
        name=name,
        scenario=name.partition("@")[0],
        title={"quicksort": "Quicksort, asked in Chinese", "blurbs": "Ten product blurbs at once"}.get(name, "Sweep"),
        title_zh={"quicksort": "快速排序（中文提问）", "blurbs": "同时写十条商品文案"}.get(name, "吞吐量随并发的变化"),
        sweep=sweep,
        load=load,
        started=1000.0,
        ended=max(record.ended for record in records),
        complete=True,
        records=records,
        metrics=metrics,
        shares=[
            CeilingShare(
                figure="tpot",
                measured=tpot,
                ceiling=0.00183,
                share=0.00183 / tpot,
                bound="memory",
                text="A step reads 8.04 GB of weights at 4.41 TB/s.",
            ),
            CeilingShare(
                figure="output_tokens_per_s",
                measured=metrics.output_tokens_per_s,
                ceiling=546.0 * (load.concurrency or 1),
                share=metrics.output_tokens_per_s / (546.0 * (load.concurrency or 1)),
                bound="memory",
            ),
        ],
        checks=[Check(name="warm-up", level="ok", text="The first request was as fast as the rest.")],
    )


def intruder(draw: random.Random) -> ScenarioResult:
    """Sixteen decoding streams and a long prompt that stalls them."""
    load = LoadSpec(concurrency=16, requests=17, held=1, held_until=8)
    records = [
        request(f"b{n}", "intruder", 1000.0, 0.03, 0.004, 80, draw, group="background", stream=n) for n in range(16)
    ]
    for record in records:
        record.chunks = [
            Chunk(chunk.at + (0.334 if chunk.at > 1000.1 else 0), chunk.text, 1) for chunk in record.chunks
        ]
        record.ended = record.chunks[-1].at
    records.append(request("a", "intruder", 1000.1, 0.997, 0.0045, 24, draw, group="arrival", stream=16))
    return ScenarioResult(
        name="intruder",
        scenario="intruder",
        title="A long prompt among decoding streams",
        title_zh="解码途中到来的长提示词",
        load=load,
        started=1000.0,
        ended=max(record.ended for record in records),
        complete=True,
        records=records,
        metrics=measure(records),
        group_metrics=measure_groups(records),
    )


def request(
    id: str,
    name: str,
    sent: float,
    ttft: float,
    tpot: float,
    tokens: int,
    draw: random.Random,
    *,
    group: str = "",
    stream: int = 0,
) -> RequestRecord:
    at, chunks = sent + ttft, []
    for _ in range(tokens):
        chunks.append(Chunk(at, "词", 1))
        at += tpot * draw.lognormvariate(0, 0.05)
    return RequestRecord(
        id=id,
        scenario=name,
        phase="measured",
        stream=stream,
        group=group,
        sent=sent,
        headers=sent + ttft / 2,
        ended=chunks[-1].at + 0.0001,
        status=200,
        chunks=chunks,
        prompt_tokens=40,
        completion_tokens=tokens,
        token_source="server",
    )


def shift(one: ScenarioResult, start: float) -> None:
    """Moves a scenario in time."""
    by = start - one.started
    one.started, one.ended = start, one.ended + by
    for record in one.records:
        record.sent, record.ended = record.sent + by, record.ended + by
        if record.intended is not None:
            record.intended += by
        record.chunks = [Chunk(chunk.at + by, chunk.text, chunk.tokens) for chunk in record.chunks]


def samples(start: float, length: float, draw: random.Random) -> list[Sample]:
    found = []
    for step in range(int(length / 0.2)):
        at, busy = start + 0.2 * step, step % 25 < 18
        values = {
            "gpu_percent": 97.0 if busy else 3.0,
            "memory_used_bytes": 62e9,
            "power_w": draw.uniform(480, 520) if busy else 120.0,
            "sm_clock_mhz": 1980.0,
            "temperature_c": 52.0,
        }
        states = ["power limit"] if step == 30 else []
        found.append(Sample(at=at, source="gpu0", values=values, states=states))
        found.append(Sample(at=at, source="host", values={"cpu_percent": draw.uniform(8, 14)}))
        server = {"cpu_percent": draw.uniform(60, 100), "rss_bytes": 2.1e9}
        found.append(Sample(at=at, source="process:server/python:812", values=server))
    return found
