"""Whole runs, client processes included, against a server whose true timings are known."""

from __future__ import annotations

import shlex
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.bench.scripted_server import Refusal, ScriptedServer, Seen, Step, answer, hang_up, in_thread, role, say

from firsttoken.bench.arrival_check import judge_arrivals
from firsttoken.bench.events import Event, Progress, ScenarioFinished, ScenarioStarted
from firsttoken.bench.metrics import ttft
from firsttoken.bench.records import STOPPED, Check, LoadSpec, RunResult, Sample, ScenarioResult, ServerIdentity
from firsttoken.bench.result_file import load_result
from firsttoken.bench.run import BenchSpec, run_scenarios
from firsttoken.bench.scenario import Dialogue, FixedDialogues, Parts, RandomPrompts, Scenario, Turn, Workload
from firsttoken.errors import ConfigError, Unavailable

SHORT = 0.02
PROMPTS = RandomPrompts(input_tokens=32, output_tokens=6)


def plain(server: ScriptedServer) -> Callable[[Seen], Sequence[Step]]:
    """Every answer has the length asked for, its first token after 20 ms and one each 4 ms."""

    def script(seen: Seen) -> Sequence[Step]:
        texts = [" w"] * seen.body["max_tokens"]
        return answer(texts, first=0.02, each=0.004, prompt=server.prompt_tokens(seen))

    return script


def scenario(name: str, *loads: LoadSpec, workload: Workload = PROMPTS, sweep: str | None = None) -> Scenario:
    return Scenario(name=name, title=name, workload=workload, loads=list(loads), sweep=sweep)


def run(
    server: ScriptedServer,
    *scenarios: Scenario,
    out: Path | None = None,
    tell: Callable[[Event], None] | None = None,
    processes: int = 1,
    extra_body: dict[str, object] | None = None,
) -> RunResult:
    events = tell or (lambda event: None)
    spec = BenchSpec(
        url=server.url, scenarios=scenarios, out=out, processes=2, slo={"ttft": 10.0}, extra_body=extra_body or {}
    )
    return run_scenarios(spec, events)


def test_a_sweep_and_an_open_loop_are_measured_truly_and_checked(tmp_path: Path) -> None:
    closed = [LoadSpec(concurrency=n, requests=8, warm_up=2) for n in (1, 3)]
    steady = LoadSpec(rate=40.0, arrivals="constant", requests=8)
    events: list[Event] = []
    with in_thread(plain) as server:
        found = run(
            server, scenario("sweep", *closed, sweep="concurrency"), scenario("open", steady),
            out=tmp_path / "run.json", tell=events.append, processes=2,
        )  # fmt: skip
        truth = {seen.at: seen for seen in server.streamed}
    assert [point.name for point in found.scenarios] == ["sweep@1", "sweep@3", "open"]
    assert [point.complete for point in found.scenarios] == [True] * 3
    errors: list[float] = []
    for point in found.scenarios:
        assert point.metrics is not None
        assert (point.metrics.succeeded, point.metrics.failed, point.metrics.output_tokens) == (8, 0, 48)
        assert point.metrics.goodput_share == 1.0
        assert {c.name: c.level for c in point.checks if c.name in ("errors", "prompt-tokens", "output-tokens")} == {
            "errors": "ok", "prompt-tokens": "ok", "output-tokens": "ok",
        }  # fmt: skip
        for record in point.records:
            # The server read the request after it was sent and before its answer came back.
            seen = truth[min((at for at in truth if at >= record.sent), default=0.0)]
            if len(seen.written) == len(record.chunks):
                errors.append((ttft(record) or 0.0) - (seen.written[0].at - record.sent))
    assert abs(statistics.median(errors)) < 0.0005
    assert [point.load.open for point in found.scenarios] == [False, False, True]
    lags = [(r.sent - r.intended) for r in found.scenarios[2].records if r.intended is not None]
    assert len(lags) == 8
    assert min(lags) >= 0.0
    assert {r.client for r in found.scenarios[1].records} == {0, 1}
    assert [type(e) for e in events if isinstance(e, ScenarioStarted | ScenarioFinished)] == [
        ScenarioStarted,
        ScenarioFinished,
    ] * 3
    assert [e.finished for e in events if isinstance(e, Progress) and e.phase == "measured"][-1] == 8
    assert found.client_ceiling is not None
    assert (found.client_processes, found.server.kind, found.server.version) == (2, "vllm", "1.2.3")
    assert load_result(tmp_path / "run.json") == found


def test_no_prompt_is_sent_twice_in_a_run_or_in_the_next() -> None:
    prompts: list[tuple[int, ...]] = []
    for _ in range(2):
        with in_thread(plain) as server:
            run(server, scenario("a", LoadSpec(concurrency=2, requests=6, warm_up=2)))
            prompts += [tuple(seen.body["prompt"]) for seen in server.streamed]
    assert len(prompts) == len(set(prompts)) == 16


def test_dialogues_grow_and_keep_scripted_replies() -> None:
    turns = [
        Turn(messages=[{"role": "user", "content": "one {unique}"}], max_tokens=2, reply="scripted"),
        Turn(messages=[{"role": "user", "content": "two"}], max_tokens=2),
        Turn(messages=[{"role": "user", "content": "three"}], max_tokens=1),
    ]
    workload = FixedDialogues(dialogues=[Dialogue(turns=turns)])
    with in_thread(plain) as server:
        found = run(server, scenario("talk", LoadSpec(concurrency=1, requests=2), workload=workload))
        said = [[m["content"] for m in seen.body["messages"]] for seen in server.streamed]
    first = said[0][0]
    assert said[:3] == [[first], [first, "scripted", "two"], [first, "scripted", "two", " w w", "three"]]
    assert said[3][0] != first
    assert [(r.turn, r.prompt_tokens) for r in found.scenarios[0].records][:3] == [(0, 6), (1, 8), (2, 11)]


INTRUDER = Parts(
    counts=[3, 1],
    workloads=[
        RandomPrompts(input_tokens=8, output_tokens=60, group="background"),
        RandomPrompts(input_tokens=64, output_tokens=2, group="arrival"),
    ],
)


def intruded(waits: Sequence[float | None]) -> ScenarioResult:
    """Three streams over two processes, with these seconds to their first tokens (None: refused), and a long prompt."""
    waiting = list(waits)

    def script_for(server: ScriptedServer) -> Callable[[Seen], Sequence[Step] | Refusal]:
        def script(seen: Seen) -> Sequence[Step] | Refusal:
            wait = waiting.pop(0) if len(seen.body["prompt"]) == 8 else 0.02
            if wait is None:
                return Refusal(503, {"error": {"message": "full"}})
            texts = [" w"] * seen.body["max_tokens"]
            return answer(texts, first=wait, each=0.004, prompt=server.prompt_tokens(seen))

        return script

    load = LoadSpec(concurrency=3, requests=4, held=1, held_until=5)
    with in_thread(script_for) as server:
        (point,) = run(server, scenario("intruder", load, workload=INTRUDER)).scenarios
    return point


def test_a_long_prompt_arrives_when_every_stream_of_every_process_is_decoding() -> None:
    point = intruded([0.02, 0.05, 0.15])
    assert {group: found.attempted for group, found in point.group_metrics.items()} == {"background": 3, "arrival": 1}
    (late,) = [r for r in point.records if r.group == "arrival"]
    streams = [r for r in point.records if r.group == "background"]
    assert late.prompt_tokens == 64
    assert {r.client for r in streams} == {0, 1}
    assert 0 < late.sent - max(r.chunks[4].at for r in streams) < 0.1
    assert [check.level for check in judge_arrivals(point, RunResult())] == ["ok"]


def test_a_long_prompt_that_never_meets_all_streams_still_arrives_and_is_flagged() -> None:
    (check,) = judge_arrivals(intruded([0.02, 0.02, 1.5]), RunResult())
    assert (check.level, check.text[:36]) == ("flag", "Only 1 of 3 streams were decoding wh")


def test_a_stream_that_is_refused_does_not_hold_the_long_prompt_up() -> None:
    point = intruded([0.02, None, 0.02])
    assert [r.error for r in point.records if r.group == "arrival"] == [None]
    assert [r.error for r in point.records if r.group == "background"].count(None) == 2


def test_a_duration_ends_a_closed_loop() -> None:
    with in_thread(plain) as server:
        (point,) = run(server, scenario("a", LoadSpec(concurrency=2, duration=0.3))).scenarios
    assert len(point.records) >= 4
    assert max(r.sent for r in point.records) - min(r.sent for r in point.records) < 0.35


def test_errors_and_disconnects_are_recorded_and_fail_the_check() -> None:
    kinds: list[Sequence[Step] | Refusal] = [
        Refusal(503, {"error": {"message": "busy"}}),
        [role(), say(" w"), hang_up(0.01)],
    ]
    with in_thread(lambda server: lambda seen: kinds.pop(0) if kinds else plain(server)(seen)) as server:
        (point,) = run(server, scenario("a", LoadSpec(concurrency=1, requests=6))).scenarios
    assert [r.error for r in point.records[:2]] == [
        "HTTP 503: busy",
        "the server closed the connection in the middle of the answer",
    ]
    assert point.metrics is not None
    assert (point.metrics.succeeded, point.metrics.failed) == (4, 2)
    assert [check.level for check in point.checks if check.name == "errors"] == ["fail"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_broken_off_is_kept_and_resumed_where_it_ended(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "run.json"
    scenarios = [
        scenario("a", LoadSpec(concurrency=1, requests=3)),
        scenario("b", LoadSpec(concurrency=1, duration=9.0)),
    ]

    def interrupt(event: Event) -> None:
        if isinstance(event, Progress) and event.name == "b" and event.finished >= 2:
            signal.raise_signal(number)

    with in_thread(plain) as server:
        with pytest.raises(KeyboardInterrupt):
            run(server, *scenarios, out=out, tell=interrupt)
        kept = load_result(out)
        assert [(point.name, point.complete) for point in kept.scenarios] == [("a", True), ("b", False)]
        broken = kept.scenarios[1]
        assert [r.error for r in broken.records if r.error is not None] in ([], [STOPPED])
        assert broken.metrics is not None
        assert broken.metrics.succeeded >= 2
        assert broken.metrics.failed == 0
        before = len(server.streamed)
        events: list[Event] = []
        short = scenario("b", LoadSpec(concurrency=1, requests=2))
        again = run(server, scenarios[0], short, out=out, tell=events.append)
        assert len(server.streamed) == before + 2  # nothing of "a" was sent again
    assert [e.resumed for e in events if isinstance(e, ScenarioFinished)] == [True, False]
    assert [len(point.records) for point in again.scenarios] == [3, 2]
    assert load_result(out) == again


def test_a_scenario_under_another_load_is_measured_again(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    with in_thread(plain) as server:
        run(server, scenario("a", LoadSpec(concurrency=1, requests=1)), out=out)
        run(server, scenario("b", LoadSpec(concurrency=1, requests=1)), out=out)
        found = run(server, scenario("a", LoadSpec(concurrency=1, requests=2)), out=out)
    assert [(point.name, len(point.records)) for point in found.scenarios] == [("b", 1), ("a", 2)]
    assert load_result(out) == found


def test_whole_numbers_of_sampling_are_sent_as_such() -> None:
    chosen = Scenario(
        name="a", title="a", workload=PROMPTS, loads=[LoadSpec(concurrency=1, requests=1)],
        sampling={"top_k": 20.0, "temperature": 0.7},
    )  # fmt: skip
    with in_thread(plain) as server:
        run(server, chosen)
        (seen,) = server.streamed
    assert (repr(seen.body["top_k"]), seen.body["temperature"]) == ("20", 0.7)


def test_further_fields_of_a_scenario_are_sent_and_those_of_the_command_come_on_top() -> None:
    chosen = Scenario(
        name="a", title="a", workload=PROMPTS, loads=[LoadSpec(concurrency=1, requests=1)],
        extra_body={"return_token_ids": True, "seed": 1},
    )  # fmt: skip
    with in_thread(plain) as server:
        run(server, chosen, extra_body={"seed": 2})
        (seen,) = server.streamed
    assert (seen.body["return_token_ids"], seen.body["seed"]) == (True, 2)


def test_another_models_results_are_not_mixed_in(tmp_path: Path) -> None:
    with in_thread(plain) as server:
        run(server, scenario("a", LoadSpec(concurrency=1, requests=1)), out=tmp_path / "run.json")
    with in_thread(plain) as other, pytest.raises(ConfigError, match="choose another --out"):
        run(other, scenario("a", LoadSpec(concurrency=1, requests=1)), out=tmp_path / "run.json")


def test_scenarios_may_be_chosen_once_the_server_is_known_and_judges_have_a_say() -> None:
    def choose(server: ServerIdentity) -> list[Scenario]:
        assert server.max_model_len == 8192
        return [scenario("a", LoadSpec(concurrency=1, requests=1))]

    verdict = Check(name="roofline", level="fail", text="Beyond belief.")
    monitor = FakeMonitor()
    with in_thread(plain) as server:
        found = run_scenarios(
            BenchSpec(url=server.url, scenarios=choose, processes=1, self_test_seconds=SHORT),
            lambda event: None,
            monitor=monitor,
            judges=[lambda point, result: [verdict]],
        )
    assert verdict in found.scenarios[0].checks
    assert list(dict.fromkeys(monitor.calls)) == ["start None", "stop"]
    assert (found.samples, found.absent) == (monitor.samples(), ["No GPU."])


class FakeMonitor:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self, server_pid: int | None) -> None:
        self.calls.append(f"start {server_pid}")

    def stop(self) -> None:
        self.calls.append("stop")

    def samples(self) -> list[Sample]:
        times = (1.0, 2.0) if "stop" in self.calls else (1.0,)  # the last one is taken when it stops
        return [Sample(at=at, source="host", values={"cpu_percent": 5.0}) for at in times]

    def absent(self) -> list[str]:
        return ["No GPU."]


@pytest.mark.parametrize(
    ("load", "words"),
    [(LoadSpec(concurrency=1), "a number of requests or a duration"), (LoadSpec(arrivals="trace"), "sends nothing")],
)
def test_a_load_that_sends_nothing_is_refused(load: LoadSpec, words: str) -> None:
    with in_thread(plain) as server, pytest.raises(ConfigError, match=words):
        run(server, scenario("a", load))


def test_two_points_of_one_name_are_refused() -> None:
    load = LoadSpec(concurrency=1, requests=1)
    with in_thread(plain) as server, pytest.raises(ConfigError, match="same name"):
        run(server, scenario("a", load), scenario("a", load))


LAUNCHED = """
import sys, time
sys.path[:0] = {paths!r}
from tests.bench.scripted_server import serve_for_ever, answer
print("loading", flush=True)
time.sleep(0.3)
serve_for_ever({port}, lambda seen: answer([" w"] * seen.body["max_tokens"], prompt=32), {requests})
"""


def launch(requests: int | None = None) -> tuple[str, str]:
    """A command that serves, its URL; with `requests` it dies after so many."""
    port = free_port()
    code = LAUNCHED.format(paths=[path for path in sys.path if path], port=port, requests=requests)
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}", f"http://127.0.0.1:{port}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


def test_a_launched_server_is_timed_measured_and_stopped(tmp_path: Path) -> None:
    command, url = launch()
    spec = BenchSpec(
        url=url,
        scenarios=[scenario("a", LoadSpec(concurrency=1, requests=2))],
        launch=command,
        out=tmp_path / "r.json",
        self_test_seconds=SHORT,
    )
    found = run_scenarios(spec, lambda event: None)
    assert found.ready_seconds is not None
    assert 0.3 < found.ready_seconds < 20
    assert found.server.command == command
    assert "loading" in (tmp_path / "r.server.log").read_text()
    with pytest.raises(Unavailable, match="no server answers"):
        run_scenarios(BenchSpec(url=url, scenarios=spec.scenarios), lambda event: None)


def test_nothing_is_launched_where_something_serves_already() -> None:
    with in_thread(plain) as server, pytest.raises(ConfigError, match="already serves"):
        run_scenarios(BenchSpec(url=server.url, scenarios=[], launch="exit 1"), lambda event: None)


def test_a_server_that_dies_in_the_middle_is_told_and_its_records_are_kept(tmp_path: Path) -> None:
    command, url = launch(requests=3)
    spec = BenchSpec(
        url=url,
        scenarios=[scenario("a", LoadSpec(concurrency=1, requests=5))],
        launch=command,
        out=tmp_path / "r.json",
        self_test_seconds=SHORT,
    )
    with pytest.raises(Unavailable, match="the launched server ended with code 7; its log's last line: crashing"):
        run_scenarios(spec, lambda event: None)
    (point,) = load_result(tmp_path / "r.json").scenarios
    assert [r.error is None for r in point.records] == [True, True, False, False, False]


def test_threads_do_not_pile_up() -> None:
    before = threading.active_count()
    with in_thread(plain) as server:
        run(server, scenario("a", LoadSpec(concurrency=1, requests=1)))
    end = time.monotonic() + 2
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == before
