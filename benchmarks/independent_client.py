"""Does `firsttoken bench` say the same as a client that shares no code with it? Requests take turns, in random order.

Start a server first, and leave the machine alone meanwhile: python benchmarks/independent_client.py --url URL
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from typing import Any

import httpx

from firsttoken.bench.http_client import Address, HttpClient
from firsttoken.bench.metrics import e2e, tpot, ttft
from firsttoken.bench.records import RequestRecord
from firsttoken.bench.statistics import paired_ratio
from firsttoken.bench.stream_answer import StreamAnswer

FIGURES = ("TTFT", "TPOT", "E2E")


def independent(client: httpx.Client, body: dict[str, Any]) -> tuple[float, ...]:
    """TTFT, TPOT and E2E of one request, by httpx alone."""
    times: list[float] = []
    tokens = 0
    start = time.perf_counter()
    with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            now = time.perf_counter()
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
            if event["choices"] and event["choices"][0]["text"]:
                times.append(now)
    end = time.perf_counter()
    return times[0] - start, (times[-1] - times[0]) / (tokens - 1), end - start


async def ours(client: HttpClient, body: dict[str, Any]) -> tuple[float, ...]:
    """The same of one request, by the benchmark's client and metrics."""
    record = RequestRecord(id="0", scenario="check", phase="measured", stream=0)
    await client.post("/v1/completions", json.dumps(body).encode(), StreamAnswer(record))
    found = ttft(record), tpot(record), e2e(record)
    if record.error is not None or found[0] is None or found[1] is None:
        raise SystemExit(f"a request failed: {record.error or 'its answer was too short'}")
    return found[0], found[1], found[2]


async def take_turns(url: str, rounds: int, input_len: int, output_len: int) -> dict[str, list[tuple[float, ...]]]:
    """What each client measured, after two rounds of warm-up; every prompt is new."""
    client, theirs = HttpClient(Address.parse(url)), httpx.Client(base_url=url, timeout=600)
    model = model_of(theirs)
    draw = random.Random()
    found: dict[str, list[tuple[float, ...]]] = {"bench": [], "independent": []}
    for _ in range(rounds + 2):
        for name in draw.sample(sorted(found), 2):
            body = {
                "model": model,
                "prompt": [draw.randrange(1000, 40000) for _ in range(input_len)],
                "max_tokens": output_len,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            found[name].append(await ours(client, body) if name == "bench" else independent(theirs, body))
    client.close()
    return {name: measured[2:] for name, measured in found.items()}


def model_of(client: httpx.Client) -> str:
    return str(client.get("/v1/models").json()["data"][0]["id"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--input-len", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=64)
    options = parser.parse_args()
    found = asyncio.run(take_turns(options.url, options.rounds, options.input_len, options.output_len))
    print(f"{options.rounds} requests each, {options.input_len} in, {options.output_len} out; medians in ms")
    for place, figure in enumerate(FIGURES):
        a, b = ([one[place] for one in found[name]] for name in ("independent", "bench"))
        ratio = paired_ratio(a, b)
        print(
            f"{figure}: independent {statistics.median(a) * 1e3:.3f}, bench {statistics.median(b) * 1e3:.3f} "
            f"({statistics.median(b) / statistics.median(a) - 1:+.2%}); "
            f"paired {ratio.ratio - 1:+.2%} [{ratio.low - 1:+.2%}, {ratio.high - 1:+.2%}]"
        )


if __name__ == "__main__":
    main()
