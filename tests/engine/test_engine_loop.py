"""The engine loop on a real socket: what goes over it, in which order, and what happens when a worker goes away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.bare_worker import Worker, listen, request, tokens
from tests.engine.fake_engine import BUG, INVALID, FakeEngine, info

from firsttoken.engine.channel import Channel
from firsttoken.engine.process import EngineLoop
from firsttoken.types import TokenLogprob
from firsttoken.wire import (
    Abort,
    Accepted,
    Drain,
    GetStats,
    Ready,
    Rejected,
    Stats,
    Step,
    Stop,
    Submit,
    ToWorker,
)


class Bench:
    """An engine loop on a real socket, turned by hand."""

    def __init__(self, path: Path, **engine: int) -> None:
        self.path = path
        self.engine = FakeEngine(**engine)
        self.channel = Channel(listen(path), max_outbox=1 << 20)
        self.loop = EngineLoop(self.engine, self.channel, self.engine.info)
        self.workers: list[Worker] = []

    def worker(self) -> Worker:
        worker = Worker(self.path)
        self.workers.append(worker)
        self.loop.turn(0)
        assert worker.next() == Ready(info())
        return worker

    def close(self) -> None:
        for worker in self.workers:
            worker.sock.close()
        self.channel.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "engine", max_queue=4)
    yield bench
    bench.close()


def test_a_request_is_accepted_before_its_first_token_and_gives_one_message_a_step(bench: Bench) -> None:
    worker = bench.worker()
    worker.send(Submit(request("a", 10, n=2)))
    for _ in range(4):
        bench.loop.turn(0)
    messages = worker.waiting()
    assert messages[0] == Accepted("a")
    assert [type(m) for m in messages[1:]] == [Step] * 3
    assert tokens(messages) == [("a", i, [10 + i + step]) for step in range(3) for i in range(2)]
    last = messages[-1]
    assert isinstance(last, Step)
    assert [o.finish_reason for o in last.outputs] == ["length", "length"]


def test_the_engine_improves_where_it_is_quiet_and_requests_come_first(bench: Bench) -> None:
    worker = bench.worker()
    bench.loop = EngineLoop(bench.engine, bench.channel, bench.engine.info)
    bench.engine.to_improve = 3
    bench.loop.turn(None)
    assert bench.engine.to_improve == 2, "one piece a turn, and no wait for a request"
    worker.send(Submit(request("a", 10)))
    for _ in range(3):
        bench.loop.turn(None)
    assert len(tokens(worker.waiting())) == 3
    bench.loop.turn(0)
    assert bench.engine.to_improve == 2, "another request may follow at once"
    while bench.engine.to_improve:
        bench.loop.turn(None)  # waits only as long as it must be quiet
    bench.loop.turn(0)
    assert bench.engine.to_improve == 0, "once nothing is left it is not asked again"


def test_each_worker_gets_its_own_sequences_only(bench: Bench) -> None:
    one, two = bench.worker(), bench.worker()
    one.send(Submit(request("a", 10)))
    two.send(Submit(request("b", 20)))
    for _ in range(5):
        bench.loop.turn(0)
    assert tokens(one.waiting()) == [("a", 0, [10]), ("a", 0, [11]), ("a", 0, [12])]
    assert tokens(two.waiting()) == [("b", 0, [20]), ("b", 0, [21]), ("b", 0, [22])]


def test_a_refusal_carries_its_kind_field_and_code(bench: Bench) -> None:
    worker = bench.worker()
    worker.send(Submit(request("bad", INVALID)))
    bench.loop.turn(0)
    assert worker.next() == Rejected("bad", "invalid", "This prompt is not valid.", "prompt", "bad_prompt")


def test_a_full_queue_refuses_at_once_and_the_accepted_finish(bench: Bench) -> None:
    worker = bench.worker()
    worker.send(*(Submit(request(str(i), 10)) for i in range(6)))
    for _ in range(4):
        bench.loop.turn(0)
    messages = worker.waiting()
    refused = [m for m in messages if isinstance(m, Rejected)]
    assert [(m.request_id, m.kind, m.retry_after) for m in refused] == [
        ("4", "queue_full", 3.0),
        ("5", "queue_full", 3),
    ]
    assert sorted({id_ for id_, _, _ in tokens(messages)}) == ["0", "1", "2", "3"]
    assert not bench.engine.has_work


def test_a_request_id_in_use_is_refused_and_the_first_goes_on(bench: Bench) -> None:
    worker = bench.worker()
    worker.send(Submit(request("a", 10)), Submit(request("a", 20)))
    for _ in range(4):
        bench.loop.turn(0)
    messages = worker.waiting()
    assert [type(m) for m in messages[:2]] == [Accepted, Rejected]
    assert tokens(messages) == [("a", 0, [10]), ("a", 0, [11]), ("a", 0, [12])]


def test_a_bug_met_by_one_request_refuses_it_alone(bench: Bench) -> None:
    worker = bench.worker()
    worker.send(Submit(request("a", BUG)), Submit(request("b", 10)))
    for _ in range(4):
        bench.loop.turn(0)
    messages = worker.waiting()
    assert [(m.request_id, m.kind) for m in messages if isinstance(m, Rejected)] == [("a", "unavailable")]
    assert len(tokens(messages)) == 3


def test_an_abort_frees_the_request_before_the_next_step(bench: Bench) -> None:
    worker = bench.worker()
    worker.send(Submit(request("a", max_tokens=None)))
    bench.loop.turn(0)
    worker.send(Abort(["a", "unknown"]))
    bench.loop.turn(0)
    assert bench.engine.aborted == ["a"]
    assert len(tokens(worker.waiting())) == 1


def test_a_worker_that_disconnects_aborts_all_of_its_requests_and_no_others(bench: Bench) -> None:
    leaver, stayer = bench.worker(), bench.worker()
    leaver.send(Submit(request("a", max_tokens=None)), Submit(request("b", max_tokens=None)))
    stayer.send(Submit(request("c", max_tokens=None)))
    bench.loop.turn(0)
    bench.loop.turn(0)
    leaver.sock.close()
    bench.loop.turn(0)
    assert sorted(bench.engine.aborted) == ["a", "b"]
    assert bench.engine.stats().gauges == {"num_requests_running": 1.0}


def test_a_stop_ends_one_sequence_and_leaves_its_siblings(bench: Bench) -> None:
    worker = bench.worker()
    worker.send(Submit(request("a", 10, n=2)))
    bench.loop.turn(0)
    worker.send(Stop("a", 0), Stop("a", 0))
    bench.loop.turn(0)
    bench.loop.turn(0)
    assert bench.engine.stopped == [("a", 0)]
    assert tokens(worker.waiting())[2:] == [("a", 1, [12]), ("a", 1, [13])]


def test_draining_refuses_newcomers_and_finishes_what_runs(bench: Bench) -> None:
    worker = bench.worker()
    worker.send(Submit(request("a")), Drain(), Submit(request("b")))
    for _ in range(4):
        bench.loop.turn(0)
    messages = worker.waiting()
    assert [m.kind for m in messages if isinstance(m, Rejected)] == ["unavailable"]
    assert len(tokens(messages)) == 3
    assert bench.engine.draining


def test_stats_are_answered_with_their_token(bench: Bench) -> None:
    worker = bench.worker()
    worker.send(GetStats(41))
    bench.loop.turn(0)
    answer = worker.next()
    assert isinstance(answer, Stats)
    assert (answer.token, answer.stats.gauges) == (41, {"num_requests_running": 0.0})


def test_a_worker_that_does_not_read_is_dropped_and_stalls_nobody(bench: Bench) -> None:
    stuck, other = bench.worker(), bench.worker()
    stuck.send(Submit(request("stuck", max_tokens=None)))
    bench.loop.turn(0)
    [peer] = [running.peer for running in bench.loop._running.values()]
    logprobs = TokenLogprob(1, -0.5, 1, [(i, -1.0) for i in range(1000)])
    outputs = bench.engine.step()
    outputs[0].logprobs = [logprobs]
    while peer.open:
        bench.channel.send(peer, Step(outputs))
    other.send(Submit(request("other")))
    for _ in range(4):
        bench.loop.turn(0)
    assert bench.engine.aborted == ["stuck"]
    assert len(tokens(other.waiting())) == 3


def test_what_the_kernel_does_not_take_at_once_arrives_later_in_order(bench: Bench) -> None:
    worker = bench.worker()
    worker.send(Submit(request("a", max_tokens=1000, n=4)))
    bench.loop.turn(0)
    for _ in range(1000):
        bench.loop.turn(0)
    received: list[ToWorker] = []
    while len(received) < 1001:
        bench.loop.turn(0)
        received += worker.waiting()
    assert [ids for _, index, ids in tokens(received) if index == 0] == [[10 + i] for i in range(1000)]


def test_a_broken_frame_closes_that_connection_only(bench: Bench) -> None:
    broken, other = bench.worker(), bench.worker()
    broken.sock.sendall(b"\x04\x00\x00\x00junk")
    other.send(GetStats(1))
    bench.loop.turn(0)
    bench.loop.turn(0)
    assert broken.next() is None
    assert isinstance(other.next(), Stats)
