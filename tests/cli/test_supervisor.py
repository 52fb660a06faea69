"""The supervisor with real processes, a fake engine and stub workers: starts, signals, deaths."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path

import pytest
from tests.cli.fake_serve import Launched, alive, kill, launch, until


def test_the_summary_is_printed_once_engine_and_workers_are_ready() -> None:
    with launch(api_workers=2) as server:
        url = server.wait_ready()
        assert url.startswith("http://127.0.0.1:")
        children = server.children()
        assert (len(children["engine"]), len(children["worker"])) == (1, 2)
        server.signal(signal.SIGTERM)
        assert server.finish() == 0
    for word in ("model", "activations", "weights", "attention", "4,096 tokens", "longest context", "ready in"):
        assert word in server.out
    assert "Loading: weights" in server.err


@pytest.mark.parametrize(
    ("model", "worker", "sentence"),
    [
        ("broken", "fake", "Error: The model is broken; choose another."),
        ("crash", "fake", "Error: The engine process ended with status 9."),
        ("fake", "bad template", "Error: The template is broken; choose another."),
        ("fake", "crash", "Error: API worker 0 ended with status 7 before it was ready."),
    ],
)
def test_a_start_that_fails_is_one_sentence_and_exit_code_1(model: str, worker: str, sentence: str) -> None:
    with launch(model=model, served_model_names=[worker]) as server:
        assert server.finish() == 1
    assert server.err.splitlines()[-1] == sentence
    assert "Traceback" not in server.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_loading_ends_at_once_with_one_line(number: signal.Signals) -> None:
    with launch(model="slow") as server:
        until(lambda: server.children()["engine"])
        assert server.popen.stderr
        while "weights" not in server.popen.stderr.readline():
            pass
        began = time.monotonic()
        server.signal(number)
        assert server.finish() == 128 + number
        assert time.monotonic() - began < 2
    assert server.err.splitlines()[-1] == "Stopped before the server was ready."
    assert "Traceback" not in server.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_model_is_looked_for_ends_at_once_with_one_line(number: signal.Signals) -> None:
    with launch(finding=60) as server:
        _read_until(server, "Looking for the model")
        server.signal(number)
        assert server.finish(2) == 128 + number
    assert server.err == "Stopped before the server was ready; what was downloaded is kept.\n"


def test_workers_that_do_not_end_in_time_are_killed() -> None:
    with launch(served_model_names=["stubborn"], drain_seconds=0.2, grace=0.2) as server:
        server.wait_ready()
        server.signal(signal.SIGTERM)
        assert server.finish(5) == 0


def test_a_second_signal_stops_at_once() -> None:
    with launch(served_model_names=["stubborn"], drain_seconds=60) as server:
        server.wait_ready()
        server.signal(signal.SIGINT)
        assert server.popen.stderr
        while "Stopping" not in server.popen.stderr.readline():
            pass
        server.signal(signal.SIGINT)
        assert server.finish(5) == 130


def test_a_dead_engine_ends_the_server_with_exit_code_1_and_one_sentence() -> None:
    with launch() as server:
        server.wait_ready()
        kill(server.children()["engine"][0])
        assert server.finish() == 1
    assert "Error: The engine process was killed (signal 9)" in server.err


def test_a_dead_engine_is_started_again_where_that_is_configured() -> None:
    with launch(engine_dead="restart") as server:
        server.wait_ready()
        before = server.children()
        for _ in range(2):
            [engine] = server.children()["engine"]
            kill(engine)
            _read_until(server, "The engine is back.")
            assert server.children()["engine"] != [engine]
        assert server.children()["worker"] == before["worker"]
        server.signal(signal.SIGTERM)
        assert server.finish() == 0


def test_a_dead_worker_is_replaced() -> None:
    with launch(api_workers=2) as server:
        server.wait_ready()
        victim, other = server.children()["worker"]
        kill(victim)
        until(lambda: not alive(victim) and len(server.children()["worker"]) == 2)
        assert other in server.children()["worker"]
        server.signal(signal.SIGTERM)
        assert server.finish() == 0


def test_replacements_that_die_before_they_serve_are_replaced_too(tmp_path: Path) -> None:
    with launch(api_workers=2, served_model_names=["stillborn 2 3"], env={"TMPDIR": str(tmp_path)}) as server:
        server.wait_ready()
        victim, other = server.children()["worker"]
        kill(victim)
        until(lambda: (tmp_path / "start-5").exists() and len(server.children()["worker"]) == 2)
        assert other in server.children()["worker"]
        server.signal(signal.SIGTERM)
        assert server.finish() == 0


def test_replacements_that_never_serve_end_the_server_once_the_others_have_finished(tmp_path: Path) -> None:
    with launch(api_workers=2, served_model_names=["stillborn 2 9"], env={"TMPDIR": str(tmp_path)}) as server:
        server.wait_ready()
        kill(server.children()["worker"][0])
        assert server.finish() == 1
    assert len(list(tmp_path.glob("start-*"))) == 2 + 4
    assert server.err.splitlines()[-1].startswith("Error: API worker ")
    assert server.err.splitlines()[-1].endswith(" ended with status 7 before it was ready.")


@pytest.mark.parametrize("moment", ["loading", "ready"])
def test_no_child_outlives_a_killed_supervisor(moment: str) -> None:
    with launch(model="slow" if moment == "loading" else "fake", api_workers=2) as server:
        if moment == "ready":
            server.wait_ready()
        until(lambda: len(server.children()["worker"]) == 2)
        children = server.children()
        kill(server.popen.pid)
        until(lambda: not any(alive(pid) for pids in children.values() for pid in pids))


def test_nothing_is_left_in_the_temporary_folder() -> None:
    # pytest's own folder has too long a name for the sockets that lie here
    with tempfile.TemporaryDirectory() as name, launch(env={"TMPDIR": name}) as server:
        server.wait_ready()
        [folder] = Path(name).iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        server.signal(signal.SIGTERM)
        assert server.finish() == 0
        assert list(Path(name).iterdir()) == []


def _read_until(server: Launched, text: str) -> None:
    assert server.popen.stderr
    for line in server.popen.stderr:
        if text in line:
            return
    raise AssertionError(f"{text!r} was never said")
