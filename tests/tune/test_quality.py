"""The quality gate: what a report of `bench quality` must show, and what happens when there is none."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from firsttoken.tune.quality import QualityGate, Report, judge
from firsttoken.tune.space import load_space


def report(**changed: Any) -> dict[str, Any]:
    values = {"kl": 0.004, "same_best": 0.985, "shared": 0.7, "found": 6} | changed
    floor = [{"way": way, "kind": "all", "kl": 1e-6, "same_best": 1.0} for way in ("prefill", "decode")]
    distance = [{"way": "prefill", "kind": "all", "kl": 0.001, "same_best": 0.99}]
    distance += [{"way": "decode", "kind": "all", "kl": values["kl"], "same_best": values["same_best"]}]
    distance += [{"way": "decode", "kind": "code", "kl": 9.0, "same_best": 0.1}]  # parts of the whole do not count
    return {
        "schema": "firsttoken.quality/1",
        "a": {"needles": [{"tokens": 512, "asked": 6, "found": 6}], "model": "m"},
        "b": {"needles": [{"tokens": 512, "asked": 6, "found": values["found"]}], "model": "m"},
        "floor": floor,
        "distance": distance,
        "floor_agreement": {"answers": 12, "same": 12, "shared": 1.0},
        "agreement": {"answers": 12, "same": 8, "shared": values["shared"]},
    }


@pytest.mark.parametrize(
    ("changed", "lack"),
    [
        ({}, ""),
        ({"kl": 0.2}, "KL above 0.05 nats"),
        ({"same_best": 0.9}, "top-1 agreement below 95%"),
        ({"shared": 0.3}, "greedy answers part sooner"),
        ({"found": 5}, "fewer needles found"),
    ],
)
def test_answers_must_stay_near_in_every_measure(changed: dict[str, float], lack: str) -> None:
    found = judge(msgspec.convert(report(**changed), Report))
    assert found.passed == (not lack)
    assert lack in found.text
    assert found.text_zh.startswith("每 token 的 KL 为 ")
    assert ("；" in found.text_zh) == bool(lack)


def gate(folder: Path, program: str) -> QualityGate:
    return QualityGate(
        load_space("firsttoken"), "demo", "--seed 1", folder, context=lambda: 1300, timeout=20, program=program
    )


def test_the_gate_runs_the_benchmark_on_both_sides_at_the_works_context(tmp_path: Path) -> None:
    script = tmp_path / "stub.py"
    script.write_text(
        "import json, sys\n"
        "words = sys.argv[1:]\n"
        f"json.dump(words, open({str(tmp_path / 'words')!r}, 'w'))\n"
        f"open(words[words.index('--out') + 1], 'w').write({json.dumps(report())!r})\n"
    )
    found = gate(tmp_path, shlex.join([sys.executable, str(script)]))({}, {"quantization": "int8"})
    assert found.passed, found.text
    words = json.loads((tmp_path / "words").read_text())
    assert words[:2] == ["bench", "quality"]
    assert words[words.index("--a") + 1] == "demo --seed 1"
    assert words[words.index("--b") + 1] == "demo --seed 1 --quantization int8"
    assert words[words.index("--needle-lengths") + 1] == "512,1300"


@pytest.mark.parametrize(
    ("program", "reason"), [("echo no such model; false", "ended with code 1"), ("true", "report")]
)
def test_quality_that_cannot_be_shown_is_not_passed(tmp_path: Path, program: str, reason: str) -> None:
    found = gate(tmp_path, f"{program} #")({}, {"quantization": "int8"})
    assert not found.passed
    assert reason in found.text


def test_what_the_benchmark_writes_is_what_the_gate_reads() -> None:
    from firsttoken.quality.records import Agreement, Distance, Needle, Perplexity, Side
    from firsttoken.quality.records import Quality as Written

    distance = Distance(way="decode", kind="all", positions=9, kl=0.01, kl_p99=0.1, same_best=0.99)
    side = Side(
        settings="demo",
        model="demo",
        device="cpu",
        dtype="float32",
        weights="int8",
        attention="compiled",
        weight_bytes=1,
        kv_bytes_per_token=1,
        kv_tokens=1,
        peak_bytes=1,
        start_seconds=1.0,
        tpot=0.01,
        output_tokens_per_s=9.0,
        ttft=0.1,
        perplexity=[Perplexity(kind="all", positions=9, value=8.0)],
        needles=[Needle(tokens=512, asked=6, found=6)],
    )
    agreement = Agreement(answers=12, same=12, shared=1.0)
    written = Written(
        version="1",
        created=1.0,
        chunk=256,
        answer_tokens=64,
        a=side,
        b=side,
        floor=[distance],
        distance=[distance],
        floor_agreement=agreement,
        agreement=agreement,
    )
    found = judge(msgspec.json.decode(msgspec.json.encode(written), type=Report))
    assert found.passed
    assert found.figures["kl"] == 0.01
