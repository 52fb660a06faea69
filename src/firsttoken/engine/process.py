"""The engine process: loads the model, then serves workers over a Unix socket, one step at a time."""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from firsttoken.child import Parent
from firsttoken.config import EngineConfig
from firsttoken.engine.channel import Channel, Events, Peer
from firsttoken.engine.grammar.refusal import too_many, too_slow
from firsttoken.engine.read_ahead import read_ahead
from firsttoken.errors import FirstTokenError, QueueFull, RequestError, Unavailable
from firsttoken.types import EngineInfo, GenerateRequest, SequenceOutput
from firsttoken.wire import (
    Abort,
    Accepted,
    Drain,
    EngineStats,
    Failed,
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
)

if TYPE_CHECKING:
    from firsttoken.engine.step_plan import StepPlan
    from firsttoken.engine.step_profile.recording import StepRecording

log = logging.getLogger(__name__)

_QUIET_SECONDS = 0.5  # without work, after which the engine may improve itself
_LOOK_AGAIN = 0.05  # seconds, for grammars that wait their turn to be compiled
_LAST_WORDS = 2.0  # seconds to get a failure out to the workers


class StepEngine(Protocol):
    """What the process needs of an engine; one thread calls it all."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def has_work(self) -> bool:
        """Whether a step would do something, collecting one in flight included."""

    @property
    def queued(self) -> StepPlan | None:
        """The plan that the last `step` queued, if it queued one."""

    def prepare(self, request: GenerateRequest) -> Future[Any] | None:
        """What `add` would wait for, if anything. Raises InvalidRequest or QueueFull."""

    def add(self, request: GenerateRequest) -> None:
        """Raises InvalidRequest or QueueFull."""

    def abort(self, request_id: str) -> None: ...

    def stop(self, request_id: str, index: int) -> None: ...

    def drain(self) -> None: ...

    def step(self) -> list[SequenceOutput]: ...

    def improve(self) -> bool:
        """With no work: makes later steps faster, for a tenth of a second at most. False when nothing is left to do."""

    def stats(self) -> EngineStats: ...


Progress = Callable[[str, float], None]  # phase, fraction of the whole start
Load = Callable[[EngineConfig, Progress], StepEngine]


@dataclass(slots=True)
class _Running:
    """Who asked for a request and which of its sequences have not ended."""

    peer: Peer
    unfinished: set[int]


@dataclass(slots=True)
class _Preparing:
    """A request whose grammar is being compiled: neither accepted nor rejected yet."""

    peer: Peer
    request: GenerateRequest
    prepared: Future[Any]
    deadline: float  # time.monotonic(); anew once its compiling begins
    begun: bool = False


class EngineLoop:
    """Carries requests from workers into the engine and every step's tokens back, one message a worker a step."""

    def __init__(
        self,
        engine: StepEngine,
        channel: Channel,
        info: EngineInfo,
        *,
        max_prepare_seconds: float = 5.0,
        new_recording: Callable[[], StepRecording] | None = None,
    ) -> None:
        """`max_prepare_seconds`: how long a request's grammar may wait for its turn, and then take to compile.

        `new_recording`: of steps, when a worker asks; None: nobody may.
        """
        self._engine = engine
        self._max_prepare_seconds = max_prepare_seconds
        self._preparing: dict[str, _Preparing] = {}
        self._channel = channel
        self._info = info
        self._running: dict[str, _Running] = {}
        self._new_recording = new_recording
        self._recording: StepRecording | None = None  # under way
        self._draining = False
        self._improvable = True  # as far as the engine has said
        self._quiet_from = 0.0  # time.monotonic() from which on it may improve itself

    def run(self) -> NoReturn:
        """Steps for ever; sleeps while there is nothing to do. Whatever `step` raises goes through."""
        while True:
            self.turn(None)

    def turn(self, idle: float | None) -> None:
        """Handles what has arrived, then makes one step.

        With no work it waits up to `idle` seconds for some. Where there has been none for a while it lets the engine
        improve itself, which a request would have to wait for: requests that follow each other closely must not.
        """
        self.handle(self._channel.poll(0 if self._engine.has_work else self._idle(idle)))
        if self._preparing:
            self._take_prepared()
        if self._engine.has_work:
            self._deliver(self._engine.step() if self._recording is None else self._record(self._recording))
            self._quiet_from = time.monotonic() + _QUIET_SECONDS
        elif self._improvable and time.monotonic() >= self._quiet_from:
            self._improvable = self._engine.improve()

    def _record(self, recording: StepRecording) -> list[SequenceOutput]:
        outputs = recording.step(self._engine)
        if recording.done:
            self._recording = None
        return outputs

    def _idle(self, idle: float | None) -> float | None:
        """How long nothing need be done, unless a message comes or a request becomes ready."""
        times = [waiting.deadline for waiting in self._preparing.values()]
        if any(not waiting.begun for waiting in self._preparing.values()):
            times.append(time.monotonic() + _LOOK_AGAIN)  # nobody tells when a compilation begins
        if self._improvable:
            times.append(self._quiet_from)
        if not times:
            return idle
        left = max(0.0, min(times) - time.monotonic())
        return left if idle is None else min(idle, left)

    def _take_prepared(self) -> None:
        now = time.monotonic()
        for request_id, waiting in list(self._preparing.items()):
            if waiting.prepared.done():
                del self._preparing[request_id]
                self._submit(waiting.peer, waiting.request)
            elif not waiting.begun and waiting.prepared.running():
                waiting.begun, waiting.deadline = True, now + self._max_prepare_seconds
            elif now >= waiting.deadline:
                del self._preparing[request_id]
                # One that still waits for others is not to blame.
                error = too_slow(self._max_prepare_seconds) if waiting.begun else too_many()
                self._channel.send(waiting.peer, rejection(request_id, error))

    def handle(self, events: Events) -> None:
        for peer in events.joined:
            self._channel.send(peer, Ready(self._info))
        for peer, message in events.messages:
            self._receive(peer, message)
        for peer in events.gone:
            for request_id in [id_ for id_, running in self._running.items() if running.peer is peer]:
                self._abort(request_id)
            for request_id in [id_ for id_, waiting in self._preparing.items() if waiting.peer is peer]:
                self._abort(request_id)

    def _receive(self, peer: Peer, message: ToEngine) -> None:
        match message:
            case Submit(request):
                self._submit(peer, request)
            case Abort(request_ids):
                for request_id in request_ids:
                    self._abort(request_id)
            case Stop(request_id, index):
                if (running := self._running.get(request_id)) and index in running.unfinished:
                    self._engine.stop(request_id, index)
                    self._finish(request_id, running, index)
            case GetStats(token):
                self._channel.send(peer, Stats(token, self._engine.stats()))
            case Drain():
                self._draining = True
                self._engine.drain()
            case StartProfile() if self._new_recording is not None and self._recording is None:
                self._recording = self._new_recording()

    def _submit(self, peer: Peer, request: GenerateRequest) -> None:
        try:
            if self._draining:
                raise Unavailable("The server is shutting down; send the request again later.", retry_after=5)
            if request.request_id in self._running or request.request_id in self._preparing:
                raise RequestError(f"Request id {request.request_id!r} is in use.")
            prepared = self._engine.prepare(request)
            if prepared is not None:
                deadline = time.monotonic() + self._max_prepare_seconds
                self._preparing[request.request_id] = _Preparing(peer, request, prepared, deadline)
                prepared.add_done_callback(lambda _: self._channel.wake())
                return
            self._engine.add(request)
        except RequestError as error:
            self._channel.send(peer, rejection(request.request_id, error))
        except Exception:
            # Our bug, but one request's: the others are not to pay for it.
            log.exception("a request could not be taken")
            self._engine.abort(request.request_id)
            fault = Unavailable("The engine could not take this request; the server's log says why.")
            self._channel.send(peer, rejection(request.request_id, fault))
        else:
            self._running[request.request_id] = _Running(peer, set(range(request.n)))
            self._channel.send(peer, Accepted(request.request_id))

    def _abort(self, request_id: str) -> None:
        self._preparing.pop(request_id, None)
        if self._running.pop(request_id, None):
            self._engine.abort(request_id)

    def _finish(self, request_id: str, running: _Running, index: int) -> None:
        running.unfinished.discard(index)
        if not running.unfinished:
            del self._running[request_id]

    def _deliver(self, outputs: list[SequenceOutput]) -> None:
        by_peer: dict[Peer, list[SequenceOutput]] = {}
        for output in outputs:
            running = self._running.get(output.request_id)
            if running is None or output.index not in running.unfinished:
                continue  # aborted or stopped while this step was in flight
            by_peer.setdefault(running.peer, []).append(output)
            if output.finish_reason is not None:
                self._finish(output.request_id, running, output.index)
        for peer, mine in by_peer.items():
            self._channel.send(peer, Step(mine))


def rejection(request_id: str, error: RequestError) -> Rejected:
    """The error as it travels to the worker, which raises the same type again."""
    retry_after: float | None = None
    kind = "invalid"
    if isinstance(error, QueueFull):
        kind, retry_after = "queue_full", error.retry_after
    elif isinstance(error, Unavailable):
        kind, retry_after = "unavailable", error.retry_after
    return Rejected(request_id, kind, error.message, error.param, error.code, retry_after)


def serve(channel: Channel, config: Callable[[], EngineConfig], find_load: Callable[[], Load]) -> int:
    """Loads and runs an engine until it fails; returns the exit code. Workers are told of progress and failure.

    `find_load` imports the loader, and torch with it, while the supervisor may still be looking for the model;
    `config` waits for that.
    """
    started = time.monotonic()
    latest = Loading("import torch", 0.0)

    def on_progress(phase: str, fraction: float) -> None:
        nonlocal latest
        latest = Loading(phase, fraction)
        channel.broadcast(latest)
        _turn_away(channel, latest)

    try:
        _turn_away(channel, latest)
        gc.disable()  # collections find nothing while modules are imported, and cost a seventh of that time
        load = find_load()
        gc.freeze()
        gc.enable()
        imported = time.monotonic()
        engine_config = config()
        configured = time.monotonic()
        engine = load(engine_config, on_progress)
        waits = {"import torch": imported - started, "wait for files": configured - imported}
        info = replace(engine.info, phases=waits | engine.info.phases)
        # What exists now lives as long as the process: later collections need not look at it again.
        gc.collect()
        gc.freeze()
        channel.broadcast(Ready(info))
    except FirstTokenError as error:
        return _fail(channel, str(error))
    except Exception as error:
        log.exception("the engine could not start")
        return _fail(channel, f"The engine could not start: {_one_line(error)}")
    try:
        EngineLoop(
            engine,
            channel,
            info,
            max_prepare_seconds=engine_config.max_grammar_seconds,
            new_recording=_recordings(engine_config, info),
        ).run()
    except Exception as error:
        log.exception("the engine has failed")
        return _fail(channel, f"The engine has failed: {_one_line(error)}")


def _recordings(config: EngineConfig, info: EngineInfo) -> Callable[[], StepRecording] | None:
    if config.profile_steps is None:
        return None
    from firsttoken.engine.step_profile.keep import recordings

    return recordings(config, info)


def _turn_away(channel: Channel, latest: Loading) -> None:
    """Tells newcomers how far the start is, and whoever asks already to wait."""
    events = channel.poll(0)
    for peer in events.joined:
        channel.send(peer, latest)
    for peer, message in events.messages:
        if isinstance(message, Submit):
            error = Unavailable("The model is still loading; send the request again soon.", retry_after=2)
            channel.send(peer, rejection(message.request.request_id, error))


def _fail(channel: Channel, message: str) -> int:
    _turn_away(channel, Loading("failed", 0.0))  # those still in the backlog must hear of it too
    channel.broadcast(Failed(message))
    channel.flush(_LAST_WORDS)
    return 1


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _find_load() -> Load:
    from firsttoken.engine.loader import load_engine

    return load_engine


def main(find_load: Callable[[], Load] = _find_load) -> int:
    """Entry of the process: `argv[1]` is the inherited listening socket, stdin the tie to the supervisor."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s engine %(levelname)s %(message)s")
    if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:  # read when torch first takes memory of a GPU
        # Steps come in many sizes: segments of fixed size would be left with holes that no later step fits into.
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    config = _receive_config(Parent())
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    return serve(channel, config, find_load)


def _receive_config(parent: Parent) -> Callable[[], EngineConfig]:
    """Waits for the configuration beside the import of torch, and has the weights read from disk meanwhile."""
    received: Future[EngineConfig] = Future()

    def receive() -> None:
        try:
            config = parent.config(EngineConfig)
        except Exception as error:
            received.set_exception(error)
            return
        received.set_result(config)
        if config.load_format != "dummy":
            read_ahead(config.path)

    threading.Thread(target=receive, name="config", daemon=True).start()
    return received.result


if __name__ == "__main__":
    code = main()
    # The threads and memory of torch take long to take down, and nothing here needs it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
