"""What ends servers: a flood, a killed engine, a killed worker, and SIGTERM, each while many clients are served."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import httpx
import psutil
from tests.api.document import data_of
from tests.api.live_server import wait_until
from tests.api.whole_server import WholeServer
from tests.soak.processes import Processes
from tests.soak.soak_server import Watched, soak_server

QUEUE, SLOTS = 12, 8  # of `doomed_server`
_SHARED = {"prompt": "The quick brown fox", "ignore_eos": True}


@dataclass(frozen=True, slots=True)
class Ended:
    """How one client's request ended."""

    status: int
    last: str  # event of a stream, or the body
    seconds: float  # until the status line
    retry_after: str | None

    @property
    def whole(self) -> bool:
        return self.status == 200 and self.last == "[DONE]"

    @property
    def refused(self) -> bool:
        """At once, with the time to come back."""
        return self.status in (429, 503) and self.retry_after is not None and '"error"' in self.last

    @property
    def cut(self) -> bool:
        """By an error event, after which the stream ended well."""
        return self.status == 200 and self.last.startswith('{"error"')


class Crowd:
    """Many clients at once, each with a connection of its own."""

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._pool = ThreadPoolExecutor(size)
        self._size = size

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def ask(self, max_tokens: int) -> list[Future[Ended]]:
        return [self._pool.submit(self._one, max_tokens) for _ in range(self._size)]

    def _one(self, max_tokens: int) -> Ended:
        body = _SHARED | {"max_tokens": max_tokens, "stream": True}
        began = time.monotonic()
        with httpx.stream("POST", f"{self._url}/v1/completions", json=body, timeout=60) as response:
            seconds = time.monotonic() - began
            text = response.read().decode()
            events = data_of(text)
            retry_after = response.headers.get("retry-after")
            return Ended(response.status_code, events[-1] if events else text, seconds, retry_after)


def doomed_server() -> AbstractContextManager[WholeServer]:
    """One server for all that follows; SIGTERM is the last, for nothing comes after it."""
    flags = ("--max-queue", str(QUEUE), "--engine-dead", "restart", "--api-workers", "2", "--drain-seconds", "60")
    return soak_server(*flags)


@contextmanager
def _anew(server: WholeServer) -> Iterator[WholeServer]:
    """With connections of its own: older ones may be of a worker that is dead."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield WholeServer(server.url, client, server.pid)


def flood(doomed: WholeServer) -> str:
    """Four times what slots and queue hold: each is served whole or refused, and the next request is served."""
    with _anew(doomed) as server:
        watched = Watched(server)
        with Crowd(server.url, 4 * (QUEUE + SLOTS)) as crowd:
            ended = [each.result() for each in crowd.ask(100)]
        served, refused = sum(one.whole for one in ended), sum(one.refused for one in ended)
        assert served + refused == len(ended), [one for one in ended if not (one.whole or one.refused)]
        assert served >= QUEUE + SLOTS
        assert refused > 0
        watched.check()
        return f"{served} served, {refused} refused"


def killed_engine(doomed: WholeServer) -> str:
    """Every stream ends with an error event, `/health` is 503, and the engine comes back with the same answers."""
    with _anew(doomed) as server, Crowd(server.url, 20) as crowd:
        before = _answer(server)
        asked = crowd.ask(450)
        wait_until(lambda: server.gauge("num_requests_running") == SLOTS, 30)
        os.kill(Processes(server.pid).of("engine")[0].pid, signal.SIGKILL)
        began = time.monotonic()
        wait_until(lambda: server.client.get("/health").status_code == 503)
        ended = [each.result(timeout=30) for each in asked]
        hung = time.monotonic() - began
        assert hung < 10, f"streams hung for {hung:.1f} s"
        assert all(one.cut or one.refused or one.whole for one in ended), ended
        assert sum(one.cut for one in ended) >= SLOTS
        wait_until(lambda: server.client.get("/ready").status_code == 200, 60)
        back = time.monotonic() - began
        assert _answer(server) == before
        return f"{sum(one.cut for one in ended)} streams ended by an event; back after {back:.1f} s"


def killed_worker(doomed: WholeServer) -> str:
    """Its clients lose their connections and the engine their requests; the other worker's clients lose nothing."""
    with _anew(doomed) as server, Crowd(server.url, 16) as crowd:
        before = _answer(server)
        asked = crowd.ask(450)
        wait_until(lambda: server.gauge("num_requests_running") == SLOTS, 30)
        os.kill(Processes(server.pid).of("API worker")[0].pid, signal.SIGKILL)
        lost, whole = 0, 0
        for each in asked:
            try:
                whole += each.result(timeout=60).whole
            except httpx.TransportError:
                lost += 1
        assert whole + lost == len(asked)
        with _anew(doomed) as again:
            wait_until(again.is_idle, 30)
            wait_until(lambda: len(Processes(server.pid).of("API worker")) == 2, 30)
            assert _answer(again) == before
        return f"{lost} connections lost, {whole} streams whole"


def terminated(doomed: WholeServer) -> str:
    """Running streams finish, new requests get 503 with a time to come back, and the exit code is 0."""
    with _anew(doomed) as server, Crowd(server.url, 16) as crowd:
        asked = crowd.ask(300)
        wait_until(lambda: server.gauge("num_requests_running") + server.gauge("num_requests_waiting") == 16, 30)
        os.kill(server.pid, signal.SIGTERM)
        wait_until(lambda: server.client.get("/ready").status_code == 503)
        with Crowd(server.url, 4) as late:
            refused = [each.result() for each in late.ask(5)]
        assert all(one.refused and one.status == 503 for one in refused), refused
        ended = [each.result() for each in asked]
        assert all(one.whole for one in ended), ended
        psutil.wait_procs([psutil.Process(server.pid)], timeout=30)
        return f"{len(ended)} streams finished, {len(refused)} refused"  # the exit code is checked by the context's end


def _answer(server: WholeServer) -> object:
    return server.complete("The quick brown fox", max_tokens=20, temperature=0, ignore_eos=True)["choices"]
