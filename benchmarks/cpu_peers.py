"""firsttoken on a CPU beside its peers: the same weights, interleaved rounds, medians. See benchmarks/README.md."""

from __future__ import annotations

import argparse
import http.client
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path

from firsttoken.cli.local_server import free_port, local_server
from firsttoken.machine.ceilings import measure_memory
from firsttoken.machine.host import read_host
from firsttoken.model.hub import resolve

WORKER = Path(__file__).resolve().parent / "peer_worker.py"
PEERS = ("transformers float32", "llama.cpp Q4_1", "ctranslate2 int8")
NEED_PREPARING = {"transformers float32", "ctranslate2 int8"}  # llama.cpp reads the GGUF file itself

Ids = list[int]


@dataclass(frozen=True, slots=True)
class Reply:
    """One call: seconds to the first token, to the last one, and how many there were in all."""

    ttft: float
    seconds: float
    tokens: int


Ask = Callable[[list[Ids], int], Reply]
Contestant = Callable[[], AbstractContextManager[Ask]]  # loaded and ready inside the block


def prompt(rng: random.Random, length: int) -> Ids:
    """Random ordinary ids: every prompt is new, so no cache of prefixes helps anyone."""
    return [rng.randrange(1000, 40000) for _ in range(length)]


# --- firsttoken, over HTTP ---


def ask_server(port: int, model: str) -> Ask:
    def ask(prompts: list[Ids], max_tokens: int) -> Reply:
        start = time.perf_counter()
        first: list[float] = []
        counts: list[int] = []
        failures: list[str] = []

        def one(ids: Ids) -> None:
            body = {
                "model": model,
                "prompt": ids,
                "max_tokens": max_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                failures.append(response.read().decode(errors="replace"))
                return
            for line in response:
                if not line.startswith(b"data: {"):
                    continue
                # Parsed only where it matters: the client shares the cores with the server.
                if b'"usage":{' in line:
                    counts.append(json.loads(line[6:])["usage"]["completion_tokens"])
                elif not first:
                    first.append(time.perf_counter() - start)
            connection.close()

        threads = [threading.Thread(target=one, args=(ids,)) for ids in prompts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise SystemExit(f"the server refused: {failures[0]}")
        return Reply(first[0], time.perf_counter() - start, sum(counts))

    return ask


@contextmanager
def firsttoken(model: Path, flags: list[str]) -> Iterator[Ask]:
    port = free_port(0)
    with local_server([str(model), *flags], port=port):
        yield ask_server(port, served_name(port))


def served_name(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/v1/models")
    name = json.loads(connection.getresponse().read())["data"][0]["id"]
    connection.close()
    return str(name)


# --- peers, in processes of their own environment ---


@contextmanager
def peer(python: str, name: str, model: Path, folder: Path, threads: int) -> Iterator[Ask]:
    process = subprocess.Popen(
        [python, str(WORKER), name, str(model), str(folder), str(threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    to_peer, from_peer = process.stdin, process.stdout

    def line() -> dict[str, float]:
        while text := from_peer.readline():
            if text.startswith("{"):
                return dict(json.loads(text))
        raise SystemExit(f"{name} ended; run its worker by hand to see why: {python} {WORKER}")

    def ask(prompts: list[Ids], max_tokens: int) -> Reply:
        to_peer.write(json.dumps({"prompts": prompts, "max_tokens": max_tokens}) + "\n")
        to_peer.flush()
        told = line()
        return Reply(told["ttft"], told["seconds"], int(told["tokens"]))

    try:
        line()
        yield ask
    finally:
        to_peer.close()
        process.wait(30)
        from_peer.close()


# --- rounds ---


def measure(start: Contestant, rng: random.Random) -> list[float]:
    """The five figures of one contestant in one round, in the table's order."""
    launched = time.perf_counter()
    with start() as ask:
        before = time.perf_counter()
        launch = before - launched + ask([prompt(rng, 32)], 1).ttft
        single = ask([prompt(rng, 32)], 128)
        long = ask([prompt(rng, 512)], 1)
        ask([prompt(rng, 64) for _ in range(8)], 2)
        eight = ask([prompt(rng, 64) for _ in range(8)], 64)
    speed = (single.tokens - 1) / (single.seconds - single.ttft)
    return [speed, single.ttft, long.ttft, eight.tokens / eight.seconds, launch]


def present(python: str | None, name: str) -> bool:
    if python is None:
        return False
    done = subprocess.run([python, str(WORKER), "check", name], capture_output=True, text=True)
    print(f"{name}: {'version ' + done.stdout.strip() if done.returncode == 0 else 'absent'}", file=sys.stderr)
    return done.returncode == 0


def contestants(options: argparse.Namespace, model: Path, folder: Path) -> dict[str, Contestant]:
    threads = read_host().cores
    found: dict[str, Contestant] = {
        "firsttoken, default": partial(firsttoken, model, []),
        "firsttoken, float32": partial(firsttoken, model, ["--dtype", "float32"]),
    }
    python: str | None = options.peers_python
    names = [name for name in PEERS if present(python, name)]
    if python and set(names) & NEED_PREPARING:
        print("writing the weights in the peers' forms", file=sys.stderr)
        subprocess.run([python, str(WORKER), "prepare", str(model), str(folder)], check=True, stdout=sys.stderr)
    for name in names:
        assert python is not None
        found[name] = partial(peer, python, name, model, folder, threads)
    return {name: start for name, start in found.items() if not options.only or options.only in name}


def processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {read_host().cores} cores"


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=WORKER.parent, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers-python", help="the Python of the environment that the peers are installed in")
    parser.add_argument("--model", default="demo", help="the demo, or another small GGUF file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="contestants whose name holds this")
    options = parser.parse_args()
    model = resolve(options.model)
    memory = measure_memory()
    with tempfile.TemporaryDirectory(prefix="peers-") as name:
        everyone = contestants(options, model, Path(name))
        results: dict[str, list[list[float]]] = {name: [] for name in everyone}
        for number in range(options.rounds):
            for name, start in everyone.items():
                figures = measure(start, random.Random(f"{number} {name}"))
                results[name].append(figures)
                print(f"round {number + 1}: {name}: {' '.join(f'{f:.2f}' for f in figures)}", file=sys.stderr)
    print(f"{date.today()}, {processor()}, commit {commit()}, medians of {options.rounds} interleaved rounds")
    print(f"Memory reads {memory.bytes_per_second / 1e9:.1f} GB/s with {memory.threads} threads.\n")
    print("| | batch 1, tok/s | TTFT 32, s | TTFT 512, s | eight at once, tok/s | launch to first token, s |")
    print("|---|---|---|---|---|---|")
    for name, rounds in results.items():
        speed, short, long, eight, launch = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"| {name} | {speed:.0f} | {short:.2f} | {long:.2f} | {eight:.0f} | {launch:.1f} |")


if __name__ == "__main__":
    main()
