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
from dataclasses import astuple, dataclass
from datetime import date
from functools import partial
from pathlib import Path

from firsttoken.cli.local_server import free_port, local_server
from firsttoken.machine.ceilings import memory_ceiling
from firsttoken.machine.host import read_host
from firsttoken.model.hub import resolve

WORKER = Path(__file__).resolve().parent / "peer_worker.py"
PEERS = ("transformers float32", "llama.cpp Q4_1", "ctranslate2 int8")
NEED_PREPARING = {"transformers float32", "ctranslate2 int8"}  # llama.cpp reads the GGUF file itself

WEIGHT_BYTES: dict[str, int] = {}  # read a token, as our servers say of themselves

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
def firsttoken(name: str, model: Path, flags: list[str]) -> Iterator[Ask]:
    port = free_port(0)
    with local_server([str(model), *flags], port=port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/v1/models")
        card = json.loads(connection.getresponse().read())["data"][0]
        connection.close()
        WEIGHT_BYTES[name] = card["weight_bytes"]
        yield ask_server(port, card["id"])


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


@dataclass(frozen=True, slots=True)
class Figures:
    """What one contestant showed in one round."""

    speed: float  # tok/s at batch 1
    short: float  # TTFT of 32 tokens, seconds
    long: float  # TTFT of 512 tokens, seconds
    eight: float  # tok/s of eight at once
    launch: float  # launch to first token, seconds
    first: float  # TTFT of the very first request, seconds
    tenth: float  # of the tenth


def measure(start: Contestant, rng: random.Random) -> Figures:
    """One contestant in one round, launched anew and alone."""
    launched = time.perf_counter()
    with start() as ask:
        loaded = time.perf_counter() - launched
        firsts = [ask([prompt(rng, 32)], 1).ttft for _ in range(10)]
        single = ask([prompt(rng, 32)], 128)
        long = ask([prompt(rng, 512)], 1)
        ask([prompt(rng, 64) for _ in range(8)], 2)
        eight = ask([prompt(rng, 64) for _ in range(8)], 64)
    return Figures(
        speed=(single.tokens - 1) / (single.seconds - single.ttft),
        short=single.ttft,
        long=long.ttft,
        eight=eight.tokens / eight.seconds,
        launch=loaded + firsts[0],
        first=firsts[0],
        tenth=firsts[-1],
    )


def median(rounds: list[Figures]) -> Figures:
    return Figures(*(statistics.median(column) for column in zip(*map(astuple, rounds), strict=True)))


def present(python: str | None, name: str) -> bool:
    """Whether a peer can be imported; says so."""
    version = ""
    if python is not None:
        done = subprocess.run([python, str(WORKER), "check", name], capture_output=True, text=True)
        version = done.stdout.strip() if done.returncode == 0 else ""
    print(f"{name}: {'version ' + version if version else 'absent'}", file=sys.stderr)
    return bool(version)


def contestants(options: argparse.Namespace, model: Path, folder: Path) -> dict[str, Contestant]:
    threads = read_host().cores
    forms = {"firsttoken, default": [], "firsttoken, float32": ["--dtype", "float32"]}
    found: dict[str, Contestant] = {name: partial(firsttoken, name, model, flags) for name, flags in forms.items()}
    python: str | None = options.peers_python
    names = [name for name in PEERS if present(python, name)]
    if python and set(names) & NEED_PREPARING:
        print("writing the weights in the peers' forms", file=sys.stderr)
        subprocess.run([python, str(WORKER), "prepare", str(model), str(folder)], check=True, stdout=sys.stderr)
    for name in names:
        assert python is not None
        found[name] = partial(peer, python, name, model, folder, threads)
    return {name: start for name, start in found.items() if not options.only or options.only in name}


def weight_file(name: str, model: Path, folder: Path) -> Path:
    """The file whose bytes a peer reads for each token."""
    files = {
        "transformers float32": folder / "float32" / "model.safetensors",
        "ctranslate2 int8": folder / "ctranslate2" / "model.bin",
    }
    return files.get(name, model)


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
    memory = memory_ceiling()
    with tempfile.TemporaryDirectory(prefix="peers-") as name:
        folder = Path(name)
        everyone = contestants(options, model, folder)
        results: dict[str, list[Figures]] = {name: [] for name in everyone}
        for number in range(options.rounds):
            for name, start in everyone.items():
                figures = measure(start, random.Random(f"{number} {name}"))
                results[name].append(figures)
                print(f"round {number + 1}: {name}: {' '.join(f'{f:.2f}' for f in astuple(figures))}", file=sys.stderr)
        sizes = {name: weight_file(name, model, folder).stat().st_size for name in everyone if name in PEERS}
    print(f"{date.today()}, {processor()}, commit {commit()}, medians of {options.rounds} interleaved rounds.")
    print(f"Memory reads {memory.bytes_per_second / 1e9:.1f} GB/s with {memory.threads} threads, at best.\n")
    print(
        "| | batch 1, tok/s | its ceiling | TTFT 32, s | TTFT 512, s | eight at once, tok/s | launch to first token, s "
        "| first and tenth TTFT, ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, rounds in results.items():
        f = median(rounds)
        size = sizes.get(name) or WEIGHT_BYTES[name]
        print(
            f"| {name} | {f.speed:.0f} | {memory.decode_ceiling(size):.0f} | {f.short:.3f} | {f.long:.2f} "
            f"| {f.eight:.0f} | {f.launch:.1f} | {f.first * 1000:.0f}, {f.tenth * 1000:.0f} |"
        )


if __name__ == "__main__":
    main()
