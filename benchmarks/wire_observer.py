"""Does `firsttoken bench` say what went over the wire? A relay that shares no code with it times the same requests.

Start a server first: python benchmarks/wire_observer.py --url URL. Both see the very same chunks, so that this holds on
a busy machine too, where two runs would differ by more than two clients do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from firsttoken.bench.result_file import load_result

FIGURES = ("TTFT", "TPOT", "E2E")


class Relay:
    """Hands bytes on in both directions and keeps (TTFT, TPOT, E2E) of every streamed answer, in seconds."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.seen: list[tuple[float, float, float]] = []

    async def serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        server, forth = await asyncio.open_connection(self._host, self._port)
        exchange = _Exchange(self.seen)
        ways = (_pump(client, forth, exchange.asked), _pump(server, back, exchange.answered))
        await asyncio.gather(*ways, return_exceptions=True)


class _Exchange:
    """Requests on one connection, one after another."""

    def __init__(self, seen: list[tuple[float, float, float]]) -> None:
        self._seen = seen
        self._start = 0.0
        self._texts: list[float] = []
        self._tokens = 0
        self._rest = b""

    def asked(self, data: bytes) -> None:
        if data.startswith(b"POST "):
            self._start, self._texts, self._tokens, self._rest = time.perf_counter(), [], 0, b""

    def answered(self, data: bytes) -> None:
        now = time.perf_counter()
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            _, found, payload = event.partition(b"data: ")  # HTTP's own lines may stand before it
            if not found:
                continue
            if payload.startswith(b"[DONE]"):
                if self._texts and self._tokens > 1:
                    tpot = (self._texts[-1] - self._texts[0]) / (self._tokens - 1)
                    self._seen.append((self._texts[0] - self._start, tpot, now - self._start))
                continue
            content = json.loads(payload)
            self._tokens = (content.get("usage") or {}).get("completion_tokens", self._tokens)
            for choice in content.get("choices", []):
                if choice.get("text") or (choice.get("delta") or {}).get("content"):
                    self._texts.append(now)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, look: Callable[[bytes], None]) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            look(data)
            await sink.drain()
    finally:
        sink.close()


async def observe(url: str, flags: list[str], out: Path) -> list[tuple[float, float, float]]:
    """Runs the benchmark against a relay before the server; its result lies at `out`."""
    address = urlsplit(url)
    relay = Relay(address.hostname or "127.0.0.1", address.port or 80)
    listener = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    command = ["-m", "firsttoken", "bench", "run", "--url", f"http://127.0.0.1:{port}", "--out", str(out), *flags]
    process = await asyncio.create_subprocess_exec(sys.executable, *command)
    await process.wait()
    listener.close()
    return relay.seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--input-len", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=2)
    options = parser.parse_args()
    names = ("requests", "input_len", "output_len", "concurrency")
    flags = [part for name in names for part in (f"--{name.replace('_', '-')}", str(getattr(options, name)))]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.json"
        seen = asyncio.run(observe(options.url, flags, out))[-options.requests :]  # the warm-up came first
        metrics = load_result(out).scenarios[0].metrics
    if metrics is None or len(seen) < options.requests:
        raise SystemExit("the run broke off before all its requests were answered")
    print(f"{options.requests} requests, {options.concurrency} in flight; medians in ms")
    for place, found in enumerate((metrics.ttft, metrics.tpot, metrics.e2e)):
        wire, bench = statistics.median(one[place] for one in seen), found.p50 or 0.0
        print(f"{FIGURES[place]}: wire {wire * 1e3:.3f}, bench {bench * 1e3:.3f} ({bench / wire - 1:+.3%})")


if __name__ == "__main__":
    main()
