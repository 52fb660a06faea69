"""Is `firsttoken fit` right? Starts three settings on this machine's GPU and holds what they take beside its words.

    python benchmarks/fit_check.py FOLDER --load-format dummy --out fit-check.json

For each setting: what `fit` says before anything runs; then the server, a closed loop of each number of streams, the KV
blocks that the server tells, and the card's memory by NVML, less what was taken before. Without a GPU one setting runs
on the CPU. Exits with 1 where blocks or memory differ by more than 5 %, or a TPOT by more than 15 %.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from own_server import SERVE, own_server

from firsttoken.doctor.fit.ask import Ask, Device, Fit, fit
from firsttoken.doctor.fit.devices import cpu_device, local_device
from firsttoken.doctor.fit.form import Form, on_cpu, on_gpu, with_kv
from firsttoken.doctor.fit.speed import Load
from firsttoken.machine.ceilings import memory_ceiling
from firsttoken.machine.gpu import read_gpus
from firsttoken.machine.gpu_ceilings import gpu_ceilings
from firsttoken.machine.gpu_sensors import open_sensors
from firsttoken.machine.host import read_host
from firsttoken.model.config import ModelConfig, load_config
from firsttoken.model.gguf_header import gguf_read_bytes
from firsttoken.model.hub import resolve

MEMORY, TPOT = 0.05, 0.15  # how far a prediction may be off
PROMPT, OUTPUT = 512, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One launch; the fields are serve's flags."""

    context: int
    seqs: int
    quantization: str = "auto"
    kv: str = "auto"
    utilization: float = 0.9

    def ask(self, model: str, path: Path, config: ModelConfig) -> Ask:
        device = self._device()
        return Ask(
            model=model,
            config=config,
            device=device,
            form=with_kv(self._form(device, path, config), self.kv, config, gpu=device.on_gpu),
            context=self.context,
            max_num_seqs=self.seqs,
        )

    def _device(self) -> Device:
        gpus = read_gpus()
        if not gpus:
            return cpu_device(read_host(), memory_ceiling())
        return local_device(gpus[0], gpu_ceilings(gpus[0]), self.utilization)

    def _form(self, device: Device, path: Path, config: ModelConfig) -> Form:
        if device.on_gpu:
            return on_gpu("auto", self.quantization, config, device.capability)
        form = on_cpu("auto", self.quantization)
        if path.suffix != ".gguf":
            return form
        return Form(name=form.name, activation=4, weight=form.weight, kv=4, file_read=gguf_read_bytes(path))


ON_GPU = {
    "bf16": Setting(context=40_960, seqs=256),
    "fp8": Setting(context=32_768, seqs=64, quantization="fp8", kv="fp8"),
    "int4": Setting(context=8192, seqs=16, quantization="int4", utilization=0.2),
}
ON_CPU = {"cpu": Setting(context=2048, seqs=16)}


@dataclass(frozen=True, slots=True)
class Line:
    """One figure. `bound` is the share of the measured one by which the prediction may be off."""

    setting: str
    what: str
    predicted: float | None
    measured: float | None
    bound: float

    @property
    def off(self) -> float | None:
        """The prediction's error as a share of what was measured; None where one of both is unknown."""
        return None if self.predicted is None or not self.measured else self.predicted / self.measured - 1

    @property
    def right(self) -> bool:
        """Nothing said is nothing wrong; what was said and could not be measured is."""
        return self.predicted is None or (self.off is not None and abs(self.off) <= self.bound)


def check(name: str, setting: Setting, model: str, load_format: str, streams: list[int]) -> list[Line]:
    """One server's figures beside those that were said of it before."""
    path = resolve(model, weights=load_format != "dummy")
    config = load_config(path)
    found = fit(setting.ask(model, path, config))
    before = memory_used()
    flags = [word for flag, value in found.ask.flags.items() for word in (f"--{flag}", value)]
    command = [*SERVE, model, "--load-format", load_format, *flags]
    print(" ".join(command), file=sys.stderr)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, own_server(command, Path(folder, "log")) as url:
        print(f"{name}: ready after {time.monotonic() - started:.0f} s", file=sys.stderr)
        tpots = measured_tpots(url, streams, Path(folder, "bench.json"))
        after = memory_used()
        blocks = kv_blocks(url)
    taken = None if before is None or after is None else float(after - before)
    return [
        Line(name, "KV blocks", found.plan.num_blocks, blocks, MEMORY),
        Line(name, "GPU memory, GiB", _gib(None if taken is None else said_memory(found)), _gib(taken), MEMORY),
        *(Line(name, f"TPOT, ms, {n} streams", said_tpot(found, n), _ms(tpots.get(n)), TPOT) for n in streams),
    ]


def said_memory(found: Fit) -> float:
    plan = found.plan
    return float(plan.weight_bytes + plan.activation_bytes + plan.runtime_bytes + plan.kv_bytes)


def said_tpot(found: Fit, streams: int) -> float | None:
    return _ms(found.times.predict(Load(streams, PROMPT, OUTPUT)).tpot)


def measured_tpots(url: str, streams: list[int], out: Path) -> dict[int, float]:
    """Median seconds by number of streams. What the benchmark says of itself goes to stderr."""
    sweep = ",".join(map(str, streams))
    command = [sys.executable, "-m", "firsttoken", "bench", "run", "--url", url, "--out", str(out)]
    command += ["--concurrency", sweep, "--input-len", str(PROMPT), "--output-len", str(OUTPUT)]
    # Random weights name special tokens too: so each token has a text, and with it a chunk.
    command += ["--extra-body", '{"skip_special_tokens": false, "temperature": 0}']
    subprocess.run(command, check=False, stdout=sys.stderr)
    points = json.loads(out.read_text())["scenarios"] if out.is_file() else []
    found = {point["load"]["concurrency"]: point["metrics"]["tpot"] for point in points if point["metrics"]}
    return {n: one["p50"] or one["mean"] for n, one in found.items()}


def kv_blocks(url: str) -> float | None:
    """Of the server's own word."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        told = re.search(r'num_gpu_blocks="(\d+)"', answer.read().decode())
    return None if told is None else float(told[1])


def memory_used() -> int | None:
    """Bytes of the first card, by all programs; None without one."""
    sensors = open_sensors()
    if isinstance(sensors, str):
        return None
    used = sensors.read(0).memory_used
    sensors.close()
    return used


def table(lines: list[Line]) -> str:
    rows = ["| setting | figure | `fit` | measured | off |", "|---|---|---|---|---|"]
    for line in lines:
        off = "–" if line.off is None else f"{line.off:+.1%}"
        if not line.right:
            off += " (not measured)" if line.off is None else f" (over {line.bound:.0%})"
        rows.append(f"| {line.setting} | {line.what} | {_number(line.predicted)} | {_number(line.measured)} | {off} |")
    return "\n".join(rows)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def _gib(size: float | None) -> float | None:
    return None if size is None else size / 2**30


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def main() -> int:
    settings = ON_GPU if read_gpus() else ON_CPU
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="as serve takes it")
    parser.add_argument("--load-format", choices=("auto", "dummy"), default="auto", help="dummy: random weights")
    parser.add_argument("--settings", default=",".join(settings), help=f"of {', '.join(settings)}")
    parser.add_argument("--streams", default="1,16")
    parser.add_argument("--out", type=Path, help="keep the figures here, as JSON")
    given = parser.parse_args()
    if unknown := [name for name in given.settings.split(",") if name not in settings]:
        parser.error(f"there is no setting {unknown[0]!r} here; choose from {', '.join(settings)}")
    streams = [int(number) for number in given.streams.split(",")]
    lines: list[Line] = []
    for name in given.settings.split(","):
        lines += check(name, settings[name], given.model, given.load_format, streams)
        if given.out is not None:
            rows: list[dict[str, Any]] = [asdict(line) | {"off": line.off} for line in lines]
            given.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(lines))
    return 0 if all(line.right for line in lines) else 1


if __name__ == "__main__":
    raise SystemExit(main())
