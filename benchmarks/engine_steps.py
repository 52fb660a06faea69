"""What a decode step takes in the engine alone, without a server: by rows and by context, beside the bytes
that it has to read.

    python benchmarks/engine_steps.py MODEL [--load-format dummy] [--rows 1,16,64] [--context 128,4096]

Then a long prompt among decoding rows: the worst step and the prompt's own time. Hold GB/s against what
`firsttoken doctor ceilings` reads.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from firsttoken.config import EngineConfig
from firsttoken.engine.engine import Engine
from firsttoken.engine.loader import load
from firsttoken.engine.work_cost import WorkCost
from firsttoken.model.config import load_config
from firsttoken.model.hub import resolve
from firsttoken.types import GenerateRequest, SamplingParams

_SETTLED = 8  # steps after the last prompt, before any is timed


class Bench:
    """One engine, driven by hand. Times are milliseconds."""

    def __init__(self, engine: Engine, vocabulary: int) -> None:
        self._engine = engine
        self._vocabulary = vocabulary
        self._draw = random.Random()
        self._asked = 0

    def ask(self, prompt: int, tokens: int, temperature: float = 0.0) -> str:
        self._asked += 1
        ids = [self._draw.randrange(self._vocabulary) for _ in range(prompt)]
        sampling = SamplingParams(temperature=temperature, top_p=0.8, top_k=20, max_tokens=tokens, ignore_eos=True)
        name = str(self._asked)
        self._engine.add(GenerateRequest(request_id=name, prompt_token_ids=ids, sampling=sampling))
        return name

    def decode(self, rows: int, context: int, steps: int, temperature: float) -> float:
        """The median step of `rows` sequences whose contexts begin at `context` tokens."""
        names = [self.ask(context, steps + _SETTLED + rows + 64, temperature) for _ in range(rows)]
        waiting = set(names)
        while waiting:
            waiting -= {output.request_id for output in self._engine.step() if output.token_ids}
        times = self._steps(_SETTLED + steps)[_SETTLED:]
        self._leave(names)
        return statistics.median(times)

    def intrude(self, rows: int, prompt: int) -> tuple[float, float]:
        """(the decoding rows' worst step, the time to the prompt's first token) where a long one comes among them."""
        names = [self.ask(100, 4096) for _ in range(rows)]
        self._steps(2 * rows + 40)
        start = last = time.perf_counter()
        late = self.ask(prompt, 2)
        worst = first = 0.0
        while not first:
            outputs = self._engine.step()
            now = time.perf_counter()
            if outputs:
                worst, last = max(worst, now - last), now
            if any(output.request_id == late and output.token_ids for output in outputs):
                first = now - start
        self._leave([*names, late])
        return worst * 1e3, first * 1e3

    def _steps(self, count: int) -> list[float]:
        times: list[float] = []
        last = time.perf_counter()
        for _ in range(count):
            self._engine.step()
            now = time.perf_counter()
            times.append((now - last) * 1e3)
            last = now
        return times

    def _leave(self, names: list[str]) -> None:
        for name in names:
            self._engine.abort(name)
        while self._engine.has_work:
            self._engine.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--load-format", choices=("auto", "dummy"), default="auto")
    parser.add_argument("--quantization", default="auto")
    parser.add_argument("--launch-table", default="auto", help="as for serve")
    parser.add_argument("--rows", type=_numbers, default=[1, 4, 16, 64, 256])
    parser.add_argument("--context", type=_numbers, default=[512])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-model-len", type=int, default=40960)
    parser.add_argument("--intruder", type=int, default=32768, help="tokens of the long prompt; 0: none")
    options = parser.parse_args()
    path = str(resolve(options.model))
    config = EngineConfig(
        model=options.model,
        path=path,
        load_format=options.load_format,
        quantization=options.quantization,
        max_model_len=options.max_model_len,
        max_num_seqs=max(options.rows),
        launch_table=options.launch_table,
        enable_prefix_caching=False,
    )
    start = time.perf_counter()
    loaded = load(config, lambda phase, fraction: None)
    engine, info = loaded.engine, loaded.engine.info
    print(f"{options.model} on {info.device_name}: {info.weights}; loaded in {time.perf_counter() - start:.1f} s")
    while engine.improve():
        pass
    model = load_config(path)
    cost = WorkCost.of_model(model, info.weight_bytes, info.kv_bytes_per_token)
    bench = Bench(engine, model.vocab_size)
    print("| rows | context | step, ms | tok/s | GB read a step | GB/s |\n|---|---|---|---|---|---|")
    for rows in options.rows:
        for context in options.context:
            ms = bench.decode(rows, context, options.steps, options.temperature)
            middle = context + _SETTLED + options.steps // 2
            size = (cost.step_bytes + rows * middle * cost.context_bytes) / 1e9
            print(f"| {rows} | {middle} | {ms:.3f} | {rows / ms * 1e3:.0f} | {size:.2f} | {size / ms * 1e3:.0f} |")
    if options.intruder:
        for _ in range(3):
            worst, first = bench.intrude(min(16, max(options.rows) - 1), options.intruder)
            print(f"{options.intruder} tokens among streams: worst step {worst:.1f} ms, first token {first:.0f} ms")
    loaded.runner.close()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
