"""Does `firsttoken doctor live` name a slow host? The real server, on a GPU or a CPU, with a scheduler that sleeps.

    python benchmarks/slowed_scheduler.py --model demo
    python benchmarks/slowed_scheduler.py --model FOLDER --load-format dummy

Starts the server as it is and then with 100 ms of sleep before each step is planned, lets streams decode, and prints
what `doctor live --once` says of either. Nothing of firsttoken is changed: the engine process is started with a loader
whose engine sleeps. Exits with 0 where the slowed server is called host-bound and the other one is not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from own_server import own_server

from firsttoken.config import EngineConfig
from firsttoken.engine.process import Progress, StepEngine
from firsttoken.engine.process import main as engine_main
from firsttoken.engine.step_plan import StepPlan
from firsttoken.types import EngineInfo, GenerateRequest, SequenceOutput
from firsttoken.wire import EngineStats

_ANSWER = 2000  # tokens that a stream asks for at a time


class SlowEngine:
    """An engine whose scheduler takes `seconds` longer for each step, in which the device has nothing queued."""

    def __init__(self, engine: StepEngine, seconds: float) -> None:
        self._engine = engine
        self._seconds = seconds

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    @property
    def queued(self) -> StepPlan | None:
        return self._engine.queued

    def prepare(self, request: GenerateRequest) -> Future[Any] | None:
        return self._engine.prepare(request)

    def add(self, request: GenerateRequest) -> None:
        self._engine.add(request)

    def abort(self, request_id: str) -> None:
        self._engine.abort(request_id)

    def stop(self, request_id: str, index: int) -> None:
        self._engine.stop(request_id, index)

    def drain(self) -> None:
        self._engine.drain()

    def step(self) -> list[SequenceOutput]:
        time.sleep(self._seconds)
        return self._engine.step()

    def improve(self) -> bool:
        return self._engine.improve()

    def stats(self) -> EngineStats:
        return self._engine.stats()


def run_engine(seconds: float, socket: str) -> int:
    """The engine process: as firsttoken's own, but for the engine that its loader gives."""

    def find_load() -> Any:
        from firsttoken.engine.loader import load_engine

        def load(config: EngineConfig, on_progress: Progress) -> StepEngine:
            return SlowEngine(load_engine(config, on_progress), seconds)

        return load

    sys.argv[1:] = [socket]
    return engine_main(find_load)


def run_server(seconds: float, flags: list[str]) -> int:
    """`firsttoken serve MODEL FLAGS` with that engine process."""
    from firsttoken.cli.children import Commands
    from firsttoken.cli.options import engine_config, server_config
    from firsttoken.cli.serve import run_server as run
    from firsttoken.cli.serve import serve
    from firsttoken.model.hub import resolve

    values = serve.make_context("serve", flags).params
    model, weights = values.pop("model"), values["load_format"] != "dummy"
    commands = Commands(engine=(sys.executable, __file__, "engine", str(seconds)))
    found = (model, str(resolve(model, weights=weights)))
    return run(engine_config(values), server_config(values), lambda note: found, commands)


def decode(url: str, enough: threading.Event) -> None:
    """One stream, again and again."""
    fields = {"prompt": "Once upon a time", "max_tokens": _ANSWER, "ignore_eos": True, "stream": True, "temperature": 0}
    body, head = json.dumps(fields).encode(), {"Content-Type": "application/json"}
    while not enough.is_set():
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", body, head), timeout=60) as answer:
            for _ in answer:
                if enough.is_set():
                    return


def look(url: str, streams: int, seconds: float) -> dict[str, Any]:
    """What `doctor live` says while so many streams decode."""
    enough = threading.Event()
    threads = [threading.Thread(target=decode, args=(url, enough)) for _ in range(streams)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)  # prompts are read, and a card's clocks have risen
    command = [sys.executable, "-m", "firsttoken", "doctor", "live", "--json", "--seconds", str(seconds), "--url", url]
    try:
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    found: dict[str, Any] = json.loads(said)
    return found


def tell(milliseconds: float, found: dict[str, Any]) -> str:
    step = found["figures"]["step_s"]
    head = f"scheduler slowed by {milliseconds:g} ms" if milliseconds else "as it is"
    lines = [f"{head}: {found['verdict']}" + ("" if step is None else f", a step takes {step * 1e3:.2f} ms")]
    lines += [f"  {sentence}" for sentence in found["evidence"]]
    return "\n".join([*lines, f"  Change: {found['change']}"])


def right(milliseconds: float, verdict: str) -> bool:
    """Whether a server so slowed has the verdict that it must have."""
    return (verdict == "host-bound") == (milliseconds > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo", help="as serve takes it")
    parser.add_argument("--load-format", choices=("auto", "dummy"), default="auto", help="dummy: random weights")
    parser.add_argument("--slow-ms", default="0,100", help="one server for each, 0 as it is; more than a step takes")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0, help="that each look takes")
    parser.add_argument("--serve", default="", help="more options for the server")
    given = parser.parse_args()
    # Ceilings are measured before anything runs, and kept; a look never measures.
    subprocess.run([sys.executable, "-m", "firsttoken", "doctor", "ceilings"], check=True, stdout=subprocess.DEVNULL)
    all_right = True
    for milliseconds in map(float, given.slow_ms.split(",")):
        command = [sys.executable, __file__, "serve", str(milliseconds / 1e3), given.model]
        command += ["--load-format", given.load_format, *given.serve.split()]
        with tempfile.TemporaryDirectory() as folder, own_server(command, Path(folder, "log")) as url:
            found = look(url, given.streams, given.seconds)
        print(tell(milliseconds, found), flush=True)
        all_right &= right(milliseconds, found["verdict"])
    return 0 if all_right else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["engine", seconds, socket]:
            raise SystemExit(run_engine(float(seconds), socket))
        case ["serve", seconds, *flags]:
            raise SystemExit(run_server(float(seconds), flags))
    raise SystemExit(main())
