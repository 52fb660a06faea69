"""The supervisor of one server: starts the engine and the API workers, watches them, and ends them all.

It imports neither torch nor a web framework, so that it is up in a few hundredths of a second and both of its kinds
of children import theirs side by side. It listens as one more worker on the engine's socket to learn of progress,
readiness and failure.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum, auto
from typing import Protocol

from firsttoken.cli.children import Child, Commands, Worker
from firsttoken.cli.page_process import Page
from firsttoken.config import EngineConfig, ServerConfig
from firsttoken.types import EngineInfo
from firsttoken.wire import Drain, Failed, FrameReader, Loading, Ready, decode_to_worker, encode_frame

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STILLBORN_WORKERS = 3  # replacements in a row that die before they serve; one more ends the server
_SOCKET_PATH_LIMIT = 100  # bytes; a Unix socket's path cannot be longer than about 107


class Reporter(Protocol):
    """Where the supervisor tells people what happens."""

    def progress(self, phase: str, fraction: float) -> None: ...

    def ready(self, info: EngineInfo, workers_after: float) -> None:
        """Everything is warm; the slowest worker was ready `workers_after` seconds after the engine."""

    def page(self, address: str) -> None:
        """The chat page listens there."""

    def note(self, text: str) -> None: ...

    def error(self, text: str) -> None: ...


class _State(Enum):
    LOADING = auto()
    READY = auto()
    DRAINING = auto()  # until the workers have ended


class Supervisor:
    """Use as a context manager: whatever happens inside, no child is left at the end."""

    def __init__(
        self,
        server: ServerConfig,
        listener: socket.socket,
        report: Reporter,
        commands: Commands | None = None,
        *,
        page: Callable[[], Page] | None = None,
        grace: float = 8.0,
    ) -> None:
        """`page` starts the chat page, where one is wanted; `grace`: seconds beyond the drain in which workers may say
        good-bye before they are killed."""
        self._server = server
        self._listener = listener
        self._report = report
        self._commands = commands or Commands()
        self._grace = grace
        self._state = _State.LOADING
        self._selector = selectors.DefaultSelector()
        self._folder = _private_folder()
        self._engine_path = os.path.join(self._folder, "engine.sock")
        # Ours for the server's whole life: workers can connect before an engine runs, and again after its restart.
        self._engine_listener = socket.socket(socket.AF_UNIX)
        self._engine_listener.bind(self._engine_path)
        self._engine_listener.listen(128)
        self._engine_config: EngineConfig | None = None
        self._engine: Child | None = None
        self._engine_link: socket.socket | None = None
        self._frames = FrameReader()
        self._failure = ""
        self._info: EngineInfo | None = None
        self._engine_ready_at = 0.0
        self._was_ready = False
        self._workers: list[Worker] = []
        self._start_page = page
        self._page: Page | None = None
        self._page_was_ready = False
        self._stillborn = 0  # workers since the last one that became ready
        self._exit_code: int | None = None
        self._code_after_drain = 0
        self._deadline: float | None = None
        self._first_signal: int | None = None

    # --- what the command calls ---

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts every child; they import while the model is still being looked for."""
        self._start_engine()
        for i in range(self._server.api_workers):
            self._workers.append(self._start_worker(i))
        self._open_page()

    def configure(self, engine: EngineConfig, server: ServerConfig) -> None:
        """Tells every child what to load and serve."""
        self._engine_config = engine
        self._server = replace(server, engine_socket=self._engine_path)
        assert self._engine
        self._engine.configure(engine)
        for worker in self._workers:
            worker.configure(self._server)

    def run(self) -> int:
        """Watches until the end; returns the exit code."""
        with _signals_as_bytes() as signals:
            self._selector.register(signals, selectors.EVENT_READ, lambda: self._on_signals(os.read(signals, 64)))
            self._reap()  # a child that died before this is no news to the signal pipe
            while self._exit_code is None:
                timeout = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
                for key, _ in self._selector.select(timeout):
                    callback: Callable[[], None] = key.data
                    callback()
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    self._exit_code = self._code_after_drain
            self._selector.unregister(signals)
        return self._exit_code

    def close(self) -> None:
        """Ends all children at once and removes what was made. Nothing but the page's history needs an orderly end."""
        if self._page:
            self._page.terminate()
        if self._engine:
            self._engine.kill()
        for worker in self._workers:
            worker.kill()
        if self._page:
            self._page.end()
        self._unlink_engine()
        self._engine_listener.close()
        self._selector.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- children ---

    def _start_engine(self) -> None:
        self._engine = Child("The engine process", self._commands.engine, [self._engine_listener.fileno()])
        if self._engine_config:
            self._engine.configure(self._engine_config)
        link = socket.socket(socket.AF_UNIX)
        link.connect(self._engine_path)
        link.setblocking(False)
        self._engine_link = link
        self._frames = FrameReader()
        self._failure = ""
        self._selector.register(link, selectors.EVENT_READ, self._on_engine)

    def _start_worker(self, number: int) -> Worker:
        worker = Worker(f"API worker {number}", self._commands.worker, self._listener.fileno())
        self._selector.register(worker.status, selectors.EVENT_READ, lambda: self._on_worker(worker))
        return worker

    def _open_page(self) -> None:
        if self._start_page:
            self._page = page = self._start_page()
            self._selector.register(page.status, selectors.EVENT_READ, lambda: self._on_page(page))

    def _unlink_engine(self) -> None:
        if self._engine_link:
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._engine_link)
            self._engine_link.close()
            self._engine_link = None

    # --- events ---

    def _on_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _SIGNALS:
                self._on_stop(number)
        self._reap()

    def _on_stop(self, number: int) -> None:
        code = 128 + number
        if self._state is _State.READY:
            self._first_signal = number
            self._report.note(
                f"Stopping: running answers have up to {self._server.drain_seconds:g} s to finish; "
                "once more stops at once."
            )
            self._drain(0)
        elif self._state is _State.DRAINING and self._first_signal is None:
            self._first_signal = number  # draining because of a failure: its exit code stands
        else:
            if self._state is _State.LOADING and not self._was_ready:
                self._report.note("Stopped before the server was ready.")
            self._exit_code = code

    def _drain(self, code: int) -> None:
        self._state = _State.DRAINING
        self._code_after_drain = code
        self._deadline = time.monotonic() + self._server.drain_seconds + self._grace
        if self._engine_link:
            with contextlib.suppress(OSError):
                self._engine_link.sendall(encode_frame(Drain()))
        for worker in self._workers:
            worker.terminate()

    def _on_engine(self) -> None:
        """Takes in what the engine has said."""
        while self._engine_link:
            try:
                data = self._engine_link.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._unlink_engine()
                return
            for body in self._frames.feed(data):
                match decode_to_worker(body):
                    case Loading(phase, fraction) if self._state is _State.LOADING:
                        self._report.progress(phase, fraction)
                    case Ready(info):
                        self._info = info
                        self._engine_ready_at = time.monotonic()
                        self._check_ready()
                    case Failed(message):
                        self._failure = message

    def _on_worker(self, worker: Worker) -> None:
        if worker not in self._workers:
            return  # replaced while this event was on its way
        if not worker.read_status():
            self._selector.unregister(worker.status)
        self._check_ready()

    def _on_page(self, page: Page) -> None:
        if page is not self._page:
            return
        known = page.address
        if not page.read_status():
            with contextlib.suppress(KeyError):
                self._selector.unregister(page.status)
        if page.address and not known and not self._page_was_ready:
            self._page_was_ready = True
            self._report.page(page.address)

    def _check_ready(self) -> None:
        if self._state is not _State.LOADING or self._info is None or not all(w.ready for w in self._workers):
            return
        self._state = _State.READY
        if self._was_ready:
            self._report.note("The engine is back.")
        else:
            self._was_ready = True
            self._report.ready(self._info, time.monotonic() - self._engine_ready_at)

    def _reap(self) -> None:
        if self._engine and self._engine.exit_code is not None:
            self._on_engine()  # its last words
            self._on_engine_death(self._engine)
        for i, worker in enumerate(self._workers):
            if self._exit_code is None and worker.exit_code is not None:
                self._on_worker_death(i, worker)
        if self._page and self._exit_code is None and self._page.exit_code is not None:
            self._on_page(self._page)
            self._on_page_death(self._page)
        if self._state is _State.DRAINING and all(w.exit_code is not None for w in self._workers):
            self._exit_code = self._code_after_drain

    def _on_engine_death(self, engine: Child) -> None:
        reason = self._failure or f"{engine.death()}."
        self._unlink_engine()
        engine.kill()
        self._engine = None
        self._info = None
        if self._state is _State.DRAINING:
            self._report.error(reason)
            self._code_after_drain = 1
        elif self._state is _State.LOADING:
            self._report.error(reason)
            self._exit_code = 1
        elif self._server.engine_dead == "restart":
            self._report.note(f"{reason} It is started again.")
            self._state = _State.LOADING
            self._start_engine()
        else:
            self._report.error(reason)
            self._drain(1)  # the workers have an error to send to every open stream

    def _on_worker_death(self, index: int, worker: Worker) -> None:
        if self._state is _State.DRAINING:
            return
        worker.read_status()
        reason = worker.failure or worker.death()
        if not worker.ready:
            reason = worker.failure or f"{reason} before it was ready."
            self._stillborn += 1
            if not self._was_ready:
                self._report.error(reason)
                self._exit_code = 1
                return
            if self._stillborn > _STILLBORN_WORKERS:
                self._report.error(reason)
                self._drain(1)  # other workers may have streams to finish
                return
        else:
            self._stillborn = 0
        with contextlib.suppress(KeyError):
            self._selector.unregister(worker.status)
        self._report.note(f"{reason.rstrip('.')}; it is started again.")
        worker.kill()
        self._workers[index] = self._start_worker(index)
        self._workers[index].configure(self._server)

    def _on_page_death(self, page: Page) -> None:
        """The API does not depend on the page: one that has worked is started again, and a server that runs goes on."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(page.status)
        page.kill()
        self._page = None
        if self._state is _State.DRAINING:
            return
        if page.address:
            self._report.note(f"{page.death()}; it is started again.")
            self._open_page()
        elif self._page_was_ready:
            self._report.note(f"{page.death()} before it was ready; the server goes on without it.")
        else:
            self._report.error(f"{page.death()} before it was ready.")
            if self._state is _State.LOADING:
                self._exit_code = 1
            else:
                self._drain(1)


def _private_folder() -> str:
    """A new folder that only this user can enter, with a path short enough for a Unix socket."""
    folder = tempfile.mkdtemp(prefix="firsttoken-")  # mode 0700
    if len(os.fsencode(folder)) > _SOCKET_PATH_LIMIT - len("/engine.sock"):
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="firsttoken-", dir="/tmp")
    return folder


@contextlib.contextmanager
def stop_signals_raise() -> Iterator[None]:
    """While it lasts, SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt with their number: for work before `run`."""

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    with _handlers(dict.fromkeys(_SIGNALS, stop)):
        yield


@contextlib.contextmanager
def _signals_as_bytes() -> Iterator[int]:
    """While it lasts, each signal that matters arrives as one byte on the yielded descriptor, and does nothing else."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer)
    try:
        with _handlers({number: lambda *_: None for number in (*_SIGNALS, signal.SIGCHLD)}):
            yield reader
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


@contextlib.contextmanager
def _handlers(handlers: dict[signal.Signals, Callable[[int, object], None]]) -> Iterator[None]:
    """Sets them for a while; a hang-up that is ignored, as under nohup, stays so."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        handlers.pop(signal.SIGHUP, None)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
