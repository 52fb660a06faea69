"""`firsttoken bench` as a user runs it, against a server whose answers are scripted."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.bench.made_up_run import made_up_run
from tests.bench.scripted_server import ScriptedServer, Seen, Step, answer, in_thread

from firsttoken.bench.report import render
from firsttoken.bench.result_file import RecordWriter, load_result, requests_path, save_result

SMALL = ["--input-len", "32", "--output-len", "6", "--requests", "6"]


def plain(server: ScriptedServer) -> Callable[[Seen], Sequence[Step]]:
    def script(seen: Seen) -> Sequence[Step]:
        return answer([" w"] * seen.body["max_tokens"], first=0.01, each=0.002, prompt=server.prompt_tokens(seen))

    return script


def short(server: ScriptedServer) -> Callable[[Seen], Sequence[Step]]:
    """A server that ends every answer after one token, whatever was asked for."""
    return lambda seen: answer([" w"], first=0.01, prompt=server.prompt_tokens(seen))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "FIRSTTOKEN_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with in_thread(plain) as running:
        yield running


def bench(*args: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "firsttoken", "bench", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd, env=env)


def test_a_run_prints_its_figures_and_leaves_json_raw_requests_page_and_csv(
    server: ScriptedServer, tmp_path: Path, environment: dict[str, str]
) -> None:
    done = bench(
        "run", "--url", server.url, *SMALL, "--out", "run.json", "--csv", "--slo", "ttft=5s", "--api-key", "s3cret",
        cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "scripted at http://127.0.0.1:" in done.stdout
    assert "6/6" in done.stdout
    assert "Written: run.json, run.html, run.csv, run.requests.csv" in done.stdout
    result = load_result(tmp_path / "run.json")
    (scenario,) = result.scenarios
    assert scenario.metrics is not None
    assert (scenario.name, scenario.metrics.succeeded, scenario.metrics.goodput_share) == ("custom", 6, 1.0)
    assert result.command[:4] == ["firsttoken", "bench", "run", "--url"]
    assert {seen.headers["authorization"] for seen in server.streamed} == {"Bearer s3cret"}
    for path in tmp_path.glob("run.*"):
        assert "s3cret" not in path.read_text(), path.name
    assert "6 out" in (tmp_path / "run.html").read_text()
    assert len((tmp_path / "run.requests.jsonl").read_text().splitlines()) == 7  # a warm-up among them


def test_a_failed_self_check_ends_with_code_1(tmp_path: Path, environment: dict[str, str]) -> None:
    with in_thread(short) as server:
        done = bench("run", "--url", server.url, *SMALL, "--out", "x.json", cwd=tmp_path, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED  custom:" in done.stdout
    assert "Do not use these figures" in (tmp_path / "x.html").read_text()


def test_prompts_too_long_for_the_server_are_scaled_down_with_a_sentence(
    server: ScriptedServer, tmp_path: Path, environment: dict[str, str]
) -> None:
    done = bench(
        "run", "--url", server.url, "--scenario", "long-32k", "--requests", "1", "--warm-up", "0", "--output-len", "4",
        cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert "so it sends prompts of 8,124 tokens instead of 32,768." in done.stdout
    assert len(list((tmp_path / "bench").glob("*.html"))) == 1  # where the results go when nobody says


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--url", "http://127.0.0.1:1"], "no server answers at http://127.0.0.1:1"),
        (["--scenario", "quicksor"], "did you mean 'quicksort'?"),
        (["--concurrency", "1,x"], "is not a list of numbers such as 1,4,16"),
        (["--rate", "2", "--concurrency", "2"], "Give one of --concurrency, --rate and --trace"),
        (["--slo", "ttft=fast"], "ttft=fast"),
    ],
)
def test_a_users_mistake_is_one_sentence(
    args: list[str], message: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    done = bench("run", *args, cwd=tmp_path, env=environment)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def slow_server(port: int) -> str:
    """A command for --launch whose answers take a second each."""
    code = (
        "from tests.bench.scripted_server import answer, serve_for_ever; "
        f"serve_for_ever({port}, lambda seen: answer([' w'] * seen.body['max_tokens'], first=0.1, each=0.15))"
    )
    return shlex.join([sys.executable, "-c", code])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_keeps_what_it_measured_stops_its_server_and_goes_on_later(
    number: signal.Signals, tmp_path: Path, environment: dict[str, str]
) -> None:
    port, root = free_port(), Path(__file__).resolve().parents[2]
    environment["PYTHONPATH"] = str(root)
    command = [
        "run", "--url", f"http://127.0.0.1:{port}", "--launch", slow_server(port), "--out", "run.json",
        "--input-len", "32", "--output-len", "6", "--requests", "3", "--warm-up", "0", "--concurrency", "1,3",
    ]  # fmt: skip
    started = subprocess.Popen(
        [sys.executable, "-m", "firsttoken", "bench", *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    raw = tmp_path / "run.requests.jsonl"
    deadline = time.monotonic() + 40
    while not (raw.exists() and raw.read_bytes().count(b"\n") >= 1):
        assert time.monotonic() < deadline
        assert started.poll() is None, started.communicate()
        time.sleep(0.05)
    started.send_signal(number)
    stdout, stderr = started.communicate(timeout=30)
    assert started.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert "Stopped; what was measured is kept. The same command with --out run.json goes on from there." in stdout
    assert (tmp_path / "run.html").exists()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    again = bench(*command, cwd=tmp_path, env=environment)
    assert "3/3" in again.stdout, again.stdout + again.stderr
    assert [scenario.complete for scenario in load_result(tmp_path / "run.json").scenarios] == [True, True]


def test_reports_and_comparisons_are_made_from_files(tmp_path: Path, environment: dict[str, str]) -> None:
    run = made_up_run(sweep=())
    for name in ("a", "b"):
        path = tmp_path / f"{name}.json"
        save_result(path, run)
        with RecordWriter(requests_path(path), [record for one in run.scenarios for record in one.records]):
            pass
    report = bench("report", "a.json", "--html", "again.html", "--csv", "t.csv", cwd=tmp_path, env=environment)
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "again.html").read_text() == render(run)
    assert (tmp_path / "t.requests.csv").exists()
    compared = bench("compare", "a.json", "b.json", "--label", "old", "--label", "new", cwd=tmp_path, env=environment)
    assert "no difference is claimed" in compared.stdout, compared.stderr
    assert "output tok/s" in compared.stdout
    wrong = bench("compare", "a.json", "--label", "one", "--label", "two", cwd=tmp_path, env=environment)
    assert (wrong.returncode, "one --label for each result" in wrong.stderr) == (2, True)


def test_a_killed_run_is_reported_as_far_as_it_came(tmp_path: Path, environment: dict[str, str]) -> None:
    run = made_up_run(sweep=())
    records = [record for one in run.scenarios for record in one.records]
    killed = run.scenarios[0]
    killed.metrics, killed.checks, killed.shares, killed.complete, killed.ended = None, [], [], False, 0.0
    path = tmp_path / "a.json"
    save_result(path, run)
    with RecordWriter(requests_path(path), records):
        pass
    report = bench("report", "a.json", cwd=tmp_path, env=environment)
    assert "broken off" in report.stdout, report.stderr
    assert "6/6" in report.stdout


def test_an_experiment_of_one_pair_is_measured_and_read_again(tmp_path: Path, environment: dict[str, str]) -> None:
    port = free_port()
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    code = (
        "from tests.bench.scripted_server import answer, serve_for_ever; "
        f"serve_for_ever({port}, lambda seen: answer([' w'] * seen.body['max_tokens'], each=0.002))"
    )
    command = shlex.join([sys.executable, "-c", code])
    done = bench(
        "ab", "--a", command, "--b", command + " ", "--pairs", "1", "--url", f"http://127.0.0.1:{port}", *SMALL,
        "--out", "pairs", cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 pairs are too few to claim a difference" in done.stdout
    assert "launch to ready" in done.stdout
    again = bench("compare", "pairs", cwd=tmp_path, env=environment)
    assert "launch to ready" in again.stdout, again.stderr
    assert json.loads((tmp_path / "pairs" / "ab.json").read_text())["pairs"] == 1


def test_scenarios_are_listed_in_both_languages(tmp_path: Path, environment: dict[str, str]) -> None:
    english = bench("scenarios", cwd=tmp_path, env=environment).stdout
    chinese = bench("scenarios", "--zh", cwd=tmp_path, env=environment).stdout
    assert "quicksort   Quicksort, asked in Chinese (runs by default)" in english
    assert "quicksort   快速排序（中文提问）（默认会运行）" in chinese


def test_the_client_tells_its_own_ceiling(tmp_path: Path, environment: dict[str, str]) -> None:
    done = bench("selftest", "--processes", "1", "--seconds", "0.3", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" streamed chunks/s over 1 client process.\n")
    assert float(done.stdout.split()[0].replace(",", "")) > 1000


@pytest.mark.parametrize("command", ["", "run", "ab", "compare", "report", "scenarios", "selftest"])
def test_help_imports_nothing_that_a_run_needs(command: str) -> None:
    code = f"""
import sys
from firsttoken.cli.main import main
try:
    main(["bench", *{command.split()!r}, "--help"])
except SystemExit as end:
    assert end.code == 0, end.code
heavy = ("torch", "numpy", "msgspec", "httpx", "rich", "psutil", "pydantic")
print("HEAVY", [name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "HEAVY []", done.stdout + done.stderr
