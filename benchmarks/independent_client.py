"""Does `firsttoken bench` say the same as clients that share no code with it? Requests take turns, in random order.

Start a server first, and leave the machine alone meanwhile: python benchmarks/independent_client.py --url URL
The plain socket has its request's bytes ready before its clock starts, as the benchmark has; the time that a library
takes to build a request and to hand a line on counts as the server's in its figures.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import aiohttp
import httpx
import uvloop

from firsttoken.bench.http_client import Address, HttpClient
from firsttoken.bench.metrics import e2e, tpot, ttft
from firsttoken.bench.records import RequestRecord
from firsttoken.bench.statistics import paired_ratio
from firsttoken.bench.stream_answer import StreamAnswer

PATH = "/v1/completions"


class Figures(NamedTuple):
    """Of one request, in seconds."""

    TTFT: float
    TPOT: float
    E2E: float


Client = Callable[[dict[str, Any]], Awaitable[Figures]]


class Reading:
    """What one request's events say, given line by line."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._times: list[float] = []
        self._tokens = 0

    def take(self, line: str) -> None:
        now = time.perf_counter()
        if not line.startswith("data: {"):
            return
        event = json.loads(line.removeprefix("data: "))
        if event.get("usage"):
            self._tokens = event["usage"]["completion_tokens"]
        if event["choices"] and event["choices"][0]["text"]:
            self._times.append(now)

    def figures(self) -> Figures:
        end = time.perf_counter()
        first, last = self._times[0], self._times[-1]
        return Figures(first - self._start, (last - first) / (self._tokens - 1), end - self._start)


def by_socket(connection: socket.socket, host: str) -> Client:
    lines = _lines(connection)

    async def ask(body: dict[str, Any]) -> Figures:
        content = json.dumps(body).encode()
        head = f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
        reading = Reading()
        connection.sendall(request)
        for line in lines:
            reading.take(line)
            if line == "0":  # the last chunk's length
                next(lines)
                return reading.figures()
        raise SystemExit("the server closed the connection")

    return ask


def _lines(connection: socket.socket) -> Iterator[str]:
    rest = b""
    while data := connection.recv(65536):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode().strip()


def by_httpx(client: httpx.AsyncClient) -> Client:
    async def ask(body: dict[str, Any]) -> Figures:
        reading = Reading()
        async with client.stream("POST", PATH, json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                reading.take(line)
        return reading.figures()

    return ask


def by_aiohttp(client: aiohttp.ClientSession, url: str) -> Client:
    async def ask(body: dict[str, Any]) -> Figures:
        reading = Reading()
        async with client.post(url + PATH, json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                reading.take(line.decode())
        return reading.figures()

    return ask


def by_bench(client: HttpClient) -> Client:
    async def ask(body: dict[str, Any]) -> Figures:
        record = RequestRecord(id="0", scenario="check", phase="measured", stream=0)
        await client.post(PATH, json.dumps(body).encode(), StreamAnswer(record))
        first, each, whole = ttft(record), tpot(record), e2e(record)
        if record.error is not None or first is None or each is None or whole is None:
            raise SystemExit(f"a request failed: {record.error or 'its answer was too short'}")
        return Figures(first, each, whole)

    return ask


async def take_turns(url: str, rounds: int, input_len: int, output_len: int) -> dict[str, list[Figures]]:
    """What each client measured, after two rounds of warm-up; every prompt is new."""
    address = Address.parse(url)
    draw = random.Random()
    with (
        socket.create_connection((address.host, address.port)) as connection,
        closing(HttpClient(address)) as ours,
    ):
        async with httpx.AsyncClient(base_url=url, timeout=600) as theirs, aiohttp.ClientSession() as session:
            model = str((await theirs.get("/v1/models")).json()["data"][0]["id"])
            clients = {
                "bench": by_bench(ours),
                "socket": by_socket(connection, address.host),
                "httpx": by_httpx(theirs),
                "aiohttp": by_aiohttp(session, url),
            }
            found: dict[str, list[Figures]] = {name: [] for name in clients}
            for _ in range(rounds + 2):
                for name in draw.sample(sorted(found), len(found)):
                    body = {
                        "model": model,
                        "prompt": [draw.randrange(1000, 40000) for _ in range(input_len)],
                        "max_tokens": output_len,
                        "ignore_eos": True,
                        "temperature": 0,
                        "stream": True,
                        "stream_options": {"include_usage": True},
                    }
                    found[name].append(await clients[name](body))
    return {name: measured[2:] for name, measured in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--input-len", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=64)
    options = parser.parse_args()
    found = uvloop.run(take_turns(options.url, options.rounds, options.input_len, options.output_len))
    print(f"{options.rounds} requests each, {options.input_len} in, {options.output_len} out; medians in ms")
    for place, figure in enumerate(Figures._fields):
        bench = [one[place] for one in found["bench"]]
        print(f"{figure}: bench {statistics.median(bench) * 1e3:.3f}")
        for name in ("socket", "httpx", "aiohttp"):
            other = [one[place] for one in found[name]]
            median = statistics.median(other)
            ratio = paired_ratio(other, bench)
            print(
                f"  {name} {median * 1e3:.3f}: bench is {statistics.median(bench) / median - 1:+.2%}, "
                f"paired {ratio.ratio - 1:+.2%} [{ratio.low - 1:+.2%}, {ratio.high - 1:+.2%}]"
            )


if __name__ == "__main__":
    main()
