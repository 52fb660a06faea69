"""The benchmark as a user runs it, on the demo model: launched, measured, held against the machine, stopped."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from firsttoken.bench.result_file import load_result


@pytest.mark.demo
def test_the_demo_server_is_launched_measured_and_stopped(demo_file: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    serve = shlex.join([sys.executable, "-m", "firsttoken", "serve", str(demo_file), "--port", str(port)])
    done = subprocess.run(
        [
            *(sys.executable, "-m", "firsttoken", "bench", "run", "--url", f"http://127.0.0.1:{port}"),
            *("--launch", serve, "--out", str(tmp_path / "run.json"), "--slo", "ttft=60s"),
            *("--input-len", "64", "--output-len", "24", "--concurrency", "1,2", "--requests", "5"),
        ],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = load_result(tmp_path / "run.json")
    assert (result.server.kind, [one.name for one in result.scenarios]) == ("firsttoken", ["custom@1", "custom@2"])
    assert 0.5 < (result.ready_seconds or 0) < 120
    for scenario in result.scenarios:
        assert scenario.metrics is not None
        assert (scenario.metrics.succeeded, scenario.metrics.output_tokens) == (5, 120)
        assert scenario.metrics.prompt_tokens == 5 * 64
        levels = {check.name: check.level for check in scenario.checks}
        assert {levels[name] for name in ("errors", "prompt-tokens", "output-tokens", "cache")} == {"ok"}
        shares = {share.figure: share.share for share in scenario.shares}
        assert 0 < shares["tpot"] < 1
        assert 0 < shares["output_tokens_per_s"] < 1
    assert "Throughput against load" in (tmp_path / "run.html").read_text()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
