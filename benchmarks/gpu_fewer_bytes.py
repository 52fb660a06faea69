"""Every form of the weights and the KV cache over HTTP on one GPU, in one call: TPOT, TTFT, throughput, bytes, start.

    python benchmarks/gpu_fewer_bytes.py CONFIG_FOLDER --out fewer-bytes
    python benchmarks/gpu_fewer_bytes.py CONFIG_FOLDER --forms bf16,int4 --rounds 3

CONFIG_FOLDER needs a config and a tokeniser: weights are random (those of GGUF's forms in files that are made up in the
folder of --out, 2 to 5 GB at a time for Qwen3-4B). Each form is a server of its own, started by
`firsttoken bench run --launch`; within a round the forms take turns. Prints a table of medians; the reports of every
run stay in the folder that --out names.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import made_up_gguf

SCENARIOS = """
[[scenario]]
name = "short"
title = "32 tokens in, 256 out, greedy"
title_zh = "输入 32，输出 256，贪心采样"
output_tokens = 256
cache = "cold"
prompt.tokens = 32
sampling = { temperature = 0.0 }
load = { concurrency = 1, requests = 20, warm_up = 2 }

[[scenario]]
name = "long"
title = "4096 tokens in, 64 out, greedy"
title_zh = "输入 4096，输出 64，贪心采样"
output_tokens = 64
cache = "cold"
prompt.tokens = 4096
sampling = { temperature = 0.0 }
load = { concurrency = 1, requests = 10, warm_up = 2 }

[[scenario]]
name = "deep"
title = "32,768 tokens in, 64 out, greedy"
title_zh = "输入 32768，输出 64，贪心采样"
output_tokens = 64
cache = "cold"
prompt.tokens = 32768
sampling = { temperature = 0.0 }
load = { concurrency = 1, requests = 4, warm_up = 1 }

[[scenario]]
name = "many"
title = "64 in flight, 512 tokens in, 256 out, greedy"
title_zh = "64 个并发，输入 512，输出 256，贪心采样"
output_tokens = 256
cache = "cold"
prompt.tokens = 512
sampling = { temperature = 0.0 }
load = { concurrency = 64, requests = 256, warm_up = 1 }
"""
NAMES = ("short", "long", "deep", "many")
BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
# name: the server's options, and what config.json says of its (random) weights
FORMS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "bf16": ("--quantization none", None),
    "bf16-kv8": ("--quantization none --kv-cache-dtype fp8", None),
    "fp8": ("--quantization fp8", None),
    "fp8-kv8": ("--quantization fp8 --kv-cache-dtype fp8", None),
    "fp8-blocks": ("--quantization auto", BLOCKS),
    "int8": ("--quantization int8", None),
    "int4": ("--quantization int4", None),
    "int4-kv8": ("--quantization int4 --kv-cache-dtype fp8", None),
}
GGUF_FILE = "made-up.gguf"
GGUF = {form.lower(): form for form in made_up_gguf.FORMS}


@dataclass(frozen=True, slots=True)
class Reading:
    """What one run says of one form."""

    weight_bytes: float  # a token
    floor: float  # seconds a token, of the short scenario
    tpot: float  # seconds
    ttft: float  # seconds, 4096 tokens
    deep: float  # seconds a token after 32,768
    rate: float  # tokens a second at 64 in flight
    ready: float  # seconds


def main() -> int:
    known = (*FORMS, *GGUF)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--forms", default=",".join(known), help="of " + ", ".join(known))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("fewer-bytes"))
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--serve", default="", help="more options for every server")
    given = parser.parse_args()
    forms = given.forms.split(",")
    if unknown := [form for form in forms if form not in known]:
        parser.error(f"there is no form {unknown[0]!r}; choose from {', '.join(known)}")
    given.out.mkdir(parents=True, exist_ok=True)
    scenarios = given.out / "scenarios.toml"
    scenarios.write_text(SCENARIOS)
    readings: dict[str, list[Reading]] = {form: [] for form in forms}
    for round_ in range(given.rounds):
        for form in forms:
            out = given.out / f"{form}-{round_}.json"
            launch = f"{sys.executable} -m firsttoken serve {model_of(form, given.folder, given.out)}"
            launch += f" --served-model-name m --port {given.port} {given.serve}"
            try:
                readings[form].append(measure(launch, f"http://127.0.0.1:{given.port}", scenarios, out))
            finally:
                (given.out / GGUF_FILE).unlink(missing_ok=True)
            print(f"round {round_ + 1}: {form} is done", file=sys.stderr)
    print(table(readings))
    return 0


def model_of(form: str, folder: Path, out: Path) -> str:
    """What `serve` is given: the model's own folder, a copy whose config.json names a quantisation, or a GGUF file."""
    if form in GGUF:
        made_up_gguf.write(folder, out / GGUF_FILE, GGUF[form])
        return f"{out / GGUF_FILE}"
    options, quantization = FORMS[form]
    if quantization is not None:
        copy = out / form
        shutil.copytree(folder, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
        config = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
        folder = copy
    return f"{folder} --load-format dummy {options}"


def measure(launch: str, url: str, scenarios: Path, out: Path) -> Reading:
    """One server, all scenarios. Ends the program where the benchmark gave no result."""
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "firsttoken", "bench", "run", "--url", url, "--launch", launch, "--out", str(out)]
    command += ["--scenario-file", str(scenarios), *(word for name in NAMES for word in ("--scenario", name))]
    command += ["--extra-body", '{"skip_special_tokens": false}']
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    result = json.loads(out.read_text()) if out.is_file() else {"scenarios": []}
    by_name = {scenario["name"]: scenario for scenario in result["scenarios"]}
    if missing := [name for name in NAMES if name not in by_name]:
        raise SystemExit(f"{out.stem}: the benchmark gave no figures for {missing[0]}; what it said stands above.")
    if done.returncode:
        print(f"{out.stem}: a self-check failed; its figures must not be used (see {out})", file=sys.stderr)
    shares = [share for share in by_name["short"]["shares"] if share["figure"] == "tpot"]
    return Reading(
        weight_bytes=float(result["server"]["details"]["weight_bytes"]),
        floor=shares[0]["ceiling"] if shares else float("nan"),
        tpot=middle_of(by_name["short"], "tpot"),
        ttft=middle_of(by_name["long"], "ttft"),
        deep=middle_of(by_name["deep"], "tpot"),
        rate=by_name["many"]["metrics"]["output_tokens_per_s"],
        ready=result["ready_seconds"],
    )


def middle_of(scenario: dict[str, Any], name: str) -> float:
    """Its median, or the mean of requests that are too few for one. Seconds."""
    found = scenario["metrics"][name]
    return float(found["p50"] or found["mean"])


def table(readings: dict[str, list[Reading]]) -> str:
    """Medians over the rounds, a line a form."""
    lines = [
        "| form | bytes a token | floor | TPOT, batch 1 | TTFT, 4096 tokens | TPOT after 32,768 | tok/s, 64 in flight "
        "| ready in |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for form, found in readings.items():
        cells = (
            f"{middle(found, 'weight_bytes') / 1e9:.2f} GB",
            f"{middle(found, 'floor') * 1e3:.2f} ms",
            f"{middle(found, 'tpot') * 1e3:.2f} ms",
            f"{middle(found, 'ttft') * 1e3:.0f} ms",
            f"{middle(found, 'deep') * 1e3:.2f} ms",
            f"{middle(found, 'rate'):,.0f}",
            f"{middle(found, 'ready'):.1f} s",
        )
        lines.append(f"| {form} | {' | '.join(cells)} |")
    return "\n".join(lines)


def middle(found: Sequence[Reading], name: str) -> float:
    return statistics.median(getattr(reading, name) for reading in found)


if __name__ == "__main__":
    raise SystemExit(main())
