"""The engine as an API worker sees it: a `Backend` over the engine process's Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from firsttoken.errors import InvalidRequest, QueueFull, RequestError, Unavailable
from firsttoken.server.backend import BackendState, Sink
from firsttoken.types import EngineInfo, GenerateRequest, SequenceOutput
from firsttoken.wire import (
    Abort,
    Accepted,
    EngineStats,
    Failed,
    FrameReader,
    GetStats,
    Loading,
    Ready,
    Rejected,
    StartProfile,
    Stats,
    Step,
    Stop,
    Submit,
    ToEngine,
    ToWorker,
    decode_to_worker,
    encode_frame,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

_RECONNECT = 0.1  # seconds between attempts
_HEARTBEAT = 2.0  # seconds between questions that a running engine answers between two steps
_TIMEOUT_GPU = 60.0  # no step takes as long
_TIMEOUT_CPU = 600.0  # a long prefill of a large model may
_HEARTBEAT_TOKEN = -1
_DIED = "The engine process has died."
_SHUT_DOWN = "The server has shut down before this answer was finished; send the request again later."
_RETRY_AFTER = 5.0  # seconds that clients are told to wait for a restarting or draining server


@dataclass(slots=True)
class _Flight:
    """One accepted request: where its outputs go and which of its sequences have not ended."""

    sink: Sink
    unfinished: set[int]


class EngineClient(asyncio.Protocol):
    """The one dispatcher of a worker: hands every output of a step to its request's sink, in the event loop.

    No task and no queue stand between the socket and the sinks. With `restart` the engine is expected back after its
    death and the client waits for it; without, the state stays `dead`.
    """

    def __init__(self, path: str, *, restart: bool = False, timeout: float | None = None) -> None:
        """`timeout`: seconds that a step may take; an engine that says nothing for longer hangs. None: by device."""
        self._path = path
        self._restart = restart
        self._state: BackendState = "loading"
        self._info: EngineInfo | None = None
        self._loading = ("start", 0.0)
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._answers: dict[str, asyncio.Future[None]] = {}
        self._flights: dict[str, _Flight] = {}
        self._stats: dict[int, asyncio.Future[EngineStats]] = {}
        self._tokens = itertools.count()
        self._reason = ""
        self._changed = asyncio.Event()
        self._reconnect: asyncio.Task[None] | None = None
        self._timeout = timeout
        self._asked: float | None = None  # since when an answer to the heartbeat's question is owed
        self._heartbeat: asyncio.TimerHandle | None = None

    # --- life ---

    async def connect(self) -> None:
        """Connects; the engine may still be loading. Raises OSError when nobody listens."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, self._path)

    async def settled(self) -> BackendState:
        """Waits while the engine is loading and returns the state after that."""
        while self._state == "loading":
            self._changed.clear()
            await self._changed.wait()
        return self._state

    async def idle(self) -> None:
        """Waits until no request is in flight."""
        while self._flights:
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        self._restart = False
        if self._reconnect:
            self._reconnect.cancel()
        if self._heartbeat:
            self._heartbeat.cancel()
        if self._transport:
            self._transport.close()

    # --- Backend ---

    @property
    def state(self) -> BackendState:
        if self._state in ("ready", "draining") and self._hangs():
            return "hung"
        return self._state

    @property
    def info(self) -> EngineInfo | None:
        return self._info

    @property
    def loading(self) -> tuple[str, float]:
        return self._loading

    async def submit(self, request: GenerateRequest, sink: Sink) -> None:
        self._check_ready()
        answer = asyncio.get_running_loop().create_future()
        self._answers[request.request_id] = answer
        self._flights[request.request_id] = _Flight(sink, set(range(request.n)))
        self._send(Submit(request))
        try:
            await answer
        except asyncio.CancelledError:
            self.abort(request.request_id)
            raise
        finally:
            self._answers.pop(request.request_id, None)

    def stop(self, request_id: str, index: int) -> None:
        flight = self._flights.get(request_id)
        if flight and index in flight.unfinished:
            self._send(Stop(request_id, index))
            self._finish(request_id, flight, index)

    def abort(self, request_id: str) -> None:
        if self._flights.pop(request_id, None):
            self._send(Abort([request_id]))
            self._changed.set()

    async def stats(self) -> EngineStats:
        if self._transport is None or self.state in ("loading", "hung"):
            raise self._unavailable()
        token = next(self._tokens)
        answer: asyncio.Future[EngineStats] = asyncio.get_running_loop().create_future()
        self._stats[token] = answer
        self._send(GetStats(token))
        try:
            return await answer
        finally:
            self._stats.pop(token, None)

    def start_profile(self) -> None:
        self._check_ready()
        self._send(StartProfile())

    def drain(self) -> None:
        if self._state in ("loading", "ready"):
            self._state = "draining"
            self._changed.set()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its base class
        self._reader = FrameReader()

    def data_received(self, data: bytes) -> None:
        for body in self._reader.feed(data):
            self._receive(decode_to_worker(body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._asked = None
        if self._heartbeat:
            self._heartbeat.cancel()
            self._heartbeat = None
        reason = self._reason or (_SHUT_DOWN if self._state == "draining" else _DIED)
        self._reason = ""
        expected_back = self._restart and self._state != "draining"
        self._state = "loading" if expected_back else "dead"
        self._loading = ("restart", 0.0)
        error = Unavailable(reason, retry_after=_RETRY_AFTER if expected_back else None)
        waiting: list[asyncio.Future[None] | asyncio.Future[EngineStats]] = [
            *self._answers.values(),
            *self._stats.values(),
        ]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(error)
        flights, self._flights = self._flights, {}
        for request_id, flight in flights.items():
            if request_id not in self._answers:  # an unanswered submit raises instead
                self._guard(flight.sink.fail, error)
        self._changed.set()
        if expected_back:
            self._reconnect = asyncio.get_running_loop().create_task(self._connect_again())

    # --- inside ---

    async def _connect_again(self) -> None:
        while self._transport is None:
            with contextlib.suppress(OSError):
                await self.connect()
                return
            await asyncio.sleep(_RECONNECT)

    def _check_ready(self) -> None:
        if self.state != "ready":
            raise self._unavailable()

    def _hangs(self) -> bool:
        if self._asked is None or self._info is None:
            return False
        limit = self._timeout or (_TIMEOUT_CPU if self._info.device == "cpu" else _TIMEOUT_GPU)
        return asyncio.get_running_loop().time() - self._asked > limit

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        if self._asked is None and self._transport is not None:
            self._asked = loop.time()
            self._send(GetStats(_HEARTBEAT_TOKEN))
        self._heartbeat = loop.call_later(min(_HEARTBEAT, (self._timeout or _HEARTBEAT) / 2), self._beat)

    def _unavailable(self) -> Unavailable:
        if self.state == "hung":
            return Unavailable("The engine does not answer; send the request again later.", retry_after=_RETRY_AFTER)
        if self._state == "loading":
            return Unavailable("The model is still loading; send the request again soon.", retry_after=2.0)
        if self._state == "draining":
            return Unavailable("The server is shutting down; send the request again later.", retry_after=_RETRY_AFTER)
        return Unavailable(_DIED)

    def _send(self, message: ToEngine) -> None:
        if self._transport:
            self._transport.write(encode_frame(message))

    def _receive(self, message: ToWorker) -> None:
        match message:
            case Step(outputs):
                for output in outputs:
                    self._dispatch(output)
            case Accepted(request_id):
                if (answer := self._answers.get(request_id)) and not answer.done():
                    answer.set_result(None)
            case Rejected():
                self._flights.pop(message.request_id, None)
                if (answer := self._answers.get(message.request_id)) and not answer.done():
                    answer.set_exception(_error(message))
                self._changed.set()
            case Stats(token) if token == _HEARTBEAT_TOKEN:
                self._asked = None
            case Stats(token, stats):
                if (waiting := self._stats.get(token)) and not waiting.done():
                    waiting.set_result(stats)
            case Loading(phase, fraction):
                self._loading = (phase, fraction)
            case Ready(info):
                self._info = info
                self._loading = ("ready", 1.0)
                if self._state == "loading":
                    self._state = "ready"
                if self._heartbeat is None:
                    self._beat()
                self._changed.set()
            case Failed():
                # Its reason may name files or addresses; the supervisor writes it to the log.
                self._reason = "The engine has failed; the server's log says why."

    def _dispatch(self, output: SequenceOutput) -> None:
        flight = self._flights.get(output.request_id)
        if flight is None or output.index not in flight.unfinished:
            return  # aborted or stopped while this message was on its way
        if output.finish_reason is not None:
            self._finish(output.request_id, flight, output.index)
        if not self._guard(flight.sink.put, output):
            self.abort(output.request_id)
            self._guard(flight.sink.fail, RequestError("The server could not go on with this request."))

    def _finish(self, request_id: str, flight: _Flight, index: int) -> None:
        flight.unfinished.discard(index)
        if not flight.unfinished:
            del self._flights[request_id]
            self._changed.set()

    def _guard(self, call: Callable[[T], None], argument: T) -> bool:
        """One request's bug must not stop the dispatcher of all."""
        try:
            call(argument)
        except Exception:
            log.exception("a request's sink has failed")
            return False
        return True


def _error(rejected: Rejected) -> RequestError:
    if rejected.kind == "queue_full":
        return QueueFull(rejected.message, retry_after=rejected.retry_after or 1.0)
    if rejected.kind == "unavailable":
        return Unavailable(rejected.message, retry_after=rejected.retry_after)
    return InvalidRequest(rejected.message, param=rejected.param, code=rejected.code)
