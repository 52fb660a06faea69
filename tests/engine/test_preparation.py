"""A request whose grammar is being compiled is answered once it is, and holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from tests.engine.bare_worker import Worker, listen, request, tokens
from tests.engine.fake_engine import FakeEngine, info

from firsttoken.engine.channel import Channel
from firsttoken.engine.process import EngineLoop
from firsttoken.errors import InvalidRequest
from firsttoken.wire import Abort, Accepted, Ready, Rejected, Submit


class Bench:
    """An engine loop on a real socket, turned by hand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._workers: list[Worker] = []
        self.engine = FakeEngine()
        self._channel = Channel(listen(path))
        self.loop = EngineLoop(self.engine, self._channel, self.engine.info, max_prepare_seconds=0.2)

    def worker(self) -> Worker:
        worker = Worker(self._path)
        self._workers.append(worker)
        self.loop.turn(0)
        assert worker.next() == Ready(info())
        return worker

    def close(self) -> None:
        for worker in self._workers:
            worker.sock.close()
        self._channel.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "engine")
    yield bench
    bench.close()


def test_a_request_that_is_being_prepared_is_answered_after_it_and_holds_up_no_other(bench: Bench) -> None:
    worker = bench.worker()
    prepared = bench.engine.preparing["a"] = Future()
    worker.send(Submit(request("a", 10)), Submit(request("b", 20)))
    for _ in range(4):
        bench.loop.turn(0)
    messages = worker.waiting()
    assert [m.request_id for m in messages if isinstance(m, Accepted)] == ["b"]
    assert tokens(messages) == [("b", 0, [20]), ("b", 0, [21]), ("b", 0, [22])]
    prepared.set_result(None)
    for _ in range(4):
        bench.loop.turn(0)
    messages = worker.waiting()
    assert messages[0] == Accepted("a")
    assert tokens(messages) == [("a", 0, [10]), ("a", 0, [11]), ("a", 0, [12])]


def test_an_idle_loop_wakes_up_when_a_request_is_prepared(bench: Bench) -> None:
    worker = bench.worker()
    prepared = bench.engine.preparing["a"] = Future()
    worker.send(Submit(request("a", 10)))
    bench.loop.turn(0)
    threading.Timer(0.05, prepared.set_result, [None]).start()
    begin = time.monotonic()
    while bench.engine.steps == 0:
        bench.loop.turn(10)
    assert time.monotonic() - begin < 5
    assert isinstance(worker.next(), Accepted)


def test_what_fails_in_its_preparation_is_rejected(bench: Bench) -> None:
    worker = bench.worker()
    prepared = bench.engine.preparing["a"] = Future()
    worker.send(Submit(request("a", 10)))
    bench.loop.turn(0)
    prepared.set_exception(InvalidRequest("The grammar cannot be used.", param="grammar", code="invalid_grammar"))
    bench.loop.turn(0)
    assert worker.next() == Rejected("a", "invalid", "The grammar cannot be used.", "grammar", "invalid_grammar")
    assert not bench.engine.has_work


def test_a_preparation_that_takes_too_long_is_a_refusal(bench: Bench) -> None:
    worker = bench.worker()
    compiling = bench.engine.preparing["a"] = Future()
    compiling.set_running_or_notify_cancel()
    worker.send(Submit(request("a", 10)))
    begin = time.monotonic()
    answer = turned_until_an_answer(bench, worker)
    assert 0.1 < time.monotonic() - begin < 5
    assert isinstance(answer, Rejected)
    assert (answer.kind, answer.code) == ("invalid", "invalid_grammar")


def test_a_turn_that_does_not_come_is_no_fault_and_one_that_comes_late_has_all_its_time(bench: Bench) -> None:
    worker = bench.worker()
    waits, late = Future[None](), Future[None]()
    bench.engine.preparing |= {"waits": waits, "late": late}
    worker.send(Submit(request("waits", 10)), Submit(request("late", 20)))
    begin = time.monotonic()
    bench.loop.turn(0)
    time.sleep(0.12)
    late.set_running_or_notify_cancel()
    answer = turned_until_an_answer(bench, worker)
    assert isinstance(answer, Rejected)
    assert (answer.request_id, answer.kind, answer.retry_after) == ("waits", "queue_full", 1)
    answer = turned_until_an_answer(bench, worker)
    assert time.monotonic() - begin > 0.3
    assert isinstance(answer, Rejected)
    assert (answer.request_id, answer.code) == ("late", "invalid_grammar")


def turned_until_an_answer(bench: Bench, worker: Worker) -> object:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        bench.loop.turn(1)
        if messages := worker.waiting():
            (answer,) = messages
            return answer
    raise AssertionError("no answer came")


def test_who_is_gone_before_the_preparation_ends_gets_no_sequence(bench: Bench) -> None:
    leaver, stayer = bench.worker(), bench.worker()
    futures = [Future[None](), Future[None]()]
    bench.engine.preparing |= dict(zip("ab", futures, strict=True))
    leaver.send(Submit(request("a", 10)))
    stayer.send(Submit(request("b", 10)))
    bench.loop.turn(0)
    leaver.sock.close()
    stayer.send(Abort(["b"]))
    bench.loop.turn(0)
    for future in futures:
        future.set_result(None)
    bench.loop.turn(0)
    assert not bench.engine.has_work
    assert stayer.waiting() == []
