"""`firsttoken tune` as a command: its mistakes, and a whole short session on a scripted server."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from firsttoken.cli.main import main
from firsttoken.tune.records import load

ROOT = Path(__file__).resolve().parents[2]
SERVED = f"{shlex.quote(sys.executable)} -m tests.tune.served --port {{port}} {{flags}}"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ([], "--model MODEL"),
        (["--model", "m", "--set", "cpu-thread=1"], "did you mean 'cpu-threads'"),
        (["--model", "m", "--knob", "speed"], "There is no knob 'speed'"),
        (["--model", "m", "--objective", "goodput"], "--slo ttft=500ms"),
        (["--model", "m", "--command", "serve {model}"], "{port}"),
        (["--model", "m", "--workload", "suport"], "did you mean 'support'"),
        (["--model", "m", "--resume"], "no session to resume"),
    ],
)
def test_a_mistake_gets_one_sentence(
    flags: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["tune", *flags, "--out", str(tmp_path / "out")])
    assert left.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out" / "journal.jsonl").exists()


def test_a_short_session_writes_its_answer_and_is_not_begun_twice(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "firsttoken", "tune", "--model", "scripted", "--command", SERVED, "--budget", "6s"]
    words += ["--input-len", "8", "--output-len", "6", "--requests", "2", "--warm-up", "0", "--knob", "max-num-seqs=64"]
    words += ["--out", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(text in done.stdout for text in ("Keep your settings", "Not decided", "Nothing could be tried"))
    tuned = load(tmp_path / "result.json")
    assert tuned.runs >= 5  # the probe, and the baseline against itself
    assert "scripted" in (tmp_path / "report.html").read_text()
    again = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert again.returncode == 2
    assert "--resume" in again.stderr
